"""A name leads to a GGUF file or to the command that helps; a file's identity changes when its content does."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchrun import assembly, engines
from batchrun.config import Settings
from batchrun.errors import ModelError
from batchrun.models import EMBEDDED_PACKAGE, HEAD_BYTES, SAMPLE_BYTES, SAMPLES, identity, locate


def refusal(name: str) -> str:
    with pytest.raises(ModelError) as caught:
        locate(name)
    return str(caught.value)


# -- paths


def test_a_path_leads_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert locate(str(tmp_path / "m.gguf")) == tmp_path / "m.gguf"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate("~/m.gguf") == tmp_path / "m.gguf"


def test_a_path_to_nothing_is_refused_with_the_forms_there_are() -> None:
    expected = "expected a path to a .gguf file or an MLX folder, 'smollm2', 'hf:owner/repository/file.gguf' or"
    assert expected in refusal("no/such.gguf")


def test_a_folder_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    assert "no .gguf file" in refusal(str(tmp_path))
    for name in ("b.gguf", "a.gguf", "c.txt"):
        (tmp_path / name).touch()
    assert "it holds a.gguf, b.gguf" in refusal(str(tmp_path))


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-of-that-name/m.gguf", "a\0b"])
def test_a_name_that_is_no_path_is_refused(name: str) -> None:
    assert refusal(name)


# -- the embedded model


def test_the_embedded_model_is_a_file_of_its_package() -> None:
    path = locate("smollm2")
    assert path.name.endswith(".gguf")
    assert path.open("rb").read(4) == b"GGUF"
    assert EMBEDDED_PACKAGE not in sys.modules


def test_a_missing_embedded_model_is_refused_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'batchrun-llm[smollm2]'" in refusal("smollm2")


# -- the hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOCATE = """
import json, sys
from batchrun.errors import ModelError
from batchrun.models import locate
for name in sys.argv[1:]:
    try:
        print(json.dumps(str(locate(name))))
    except ModelError as error:
        print(json.dumps({"error": str(error)}))
"""


def test_a_name_on_the_hub_leads_into_the_local_cache(tmp_path: Path) -> None:
    model = tmp_path / "hub" / "models--owner--tiny-GGUF"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    here = model / "snapshots" / COMMIT
    (here / "deep").mkdir(parents=True)
    for place in (here / "tiny.gguf", here / "deep" / "tiny.gguf"):
        place.write_bytes(b"GGUF")
    names = ["hf:owner/tiny-GGUF/tiny.gguf", "hf:owner/tiny-GGUF/deep/tiny.gguf", "hf:owner/tiny-GGUF/other.gguf"]
    names += [
        "hf:owner/other/tiny.gguf",
        "hf:owner/other",
        "hf:not an owner/x/y.gguf",
        "hf:../../etc/passwd",
        "hf:a--b/c..d/e",
    ]
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", LOCATE, *names], env=environment, capture_output=True, text=True, check=True
    )
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert found[:2] == [str(here / "tiny.gguf"), str(here / "deep" / "tiny.gguf")]
    assert len(found) == len(names)
    for name, answer in zip(names[2:5], found[2:5], strict=True):
        assert answer["error"] == f"model {name} is not in the local cache; fetch it once: batchrun models pull {name}"
    for name, answer in zip(names[5:], found[5:], strict=True):
        assert answer["error"].startswith(f"model {name} ")
        assert "\n" not in answer["error"]


@pytest.mark.parametrize("name", ["hf:", "hf:owner", "hf:owner/", "hf:owner/repository/", "hf://x.gguf"])
def test_an_incomplete_name_on_the_hub_is_refused(name: str) -> None:
    assert "expected hf:owner/repository/file.gguf" in refusal(name)


# -- identities

SIZE = HEAD_BYTES + 64 * SAMPLE_BYTES * SAMPLES // 16  # larger than head and samples together


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with a hole for its weights."""
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF")
        file.truncate(SIZE)
    return path


def changed(path: Path, place: int) -> str:
    """The identity once the byte at a place is another; the byte is put back."""
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\x01")
        file.flush()
        found = identity(path)
        file.seek(place)
        file.write(b"\0")
    return found


def test_an_identity_is_stable(model: Path, tmp_path: Path) -> None:
    before = identity(model)
    other = model.rename(tmp_path / "renamed.gguf")
    os.utime(other, (0, 0))
    assert identity(other) == before
    assert len(before) == 64


def test_an_identity_changes_with_any_byte_of_the_head(model: Path) -> None:
    places = (4, 1000, HEAD_BYTES - 1)
    assert len({identity(model), *(changed(model, place) for place in places)}) == 1 + len(places)


def test_an_identity_changes_with_sampled_bytes_up_to_the_last_sample(model: Path) -> None:
    places = [SIZE * sample // SAMPLES + offset for sample in (100, 200, 255) for offset in (0, SAMPLE_BYTES - 1)]
    assert len({identity(model), *(changed(model, place) for place in places)}) == 1 + len(places)


def test_an_identity_changes_with_the_size(model: Path) -> None:
    before = identity(model)
    os.truncate(model, SIZE - 1)
    assert identity(model) != before


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    path.write_bytes(bytes(100))
    assert len({identity(path), *(changed(path, place) for place in range(100))}) == 101
    path.write_bytes(b"")
    assert identity(path)


def test_a_file_that_cannot_be_read_has_no_identity(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="could not be read"):
        identity(tmp_path / "missing.gguf")


def test_a_start_hashes_a_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF and more")
    first = identity(path)

    def read_again(place: Path, mode: str) -> None:
        raise AssertionError(f"{place} is read again")

    monkeypatch.setattr(Path, "open", read_again)
    assert identity(path) == first


def test_a_model_file_is_opened_by_a_process_of_its_own_before_this_one_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Apple the choice of an engine looks into the file; a damaged one would end this process without a word."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF but damaged")
    monkeypatch.setattr(engines, "_mlx_reads", lambda path: pytest.fail("opened here first"))
    monkeypatch.setattr(engines.sys, "platform", "darwin")
    monkeypatch.setattr(engines.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(assembly, "opened_folder", lambda: tmp_path / "opened")
    for ask in (assembly.original_identity, assembly.open_model, assembly.engine_and_formats):
        with pytest.raises(ModelError):
            ask(Settings(model=str(path)))
