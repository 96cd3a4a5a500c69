"""`batchrun models`: what is here, what one is, and other forms of it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gguf_models import TEMPLATE, Tiny, write_gguf
from shell import COMMAND, PATIENCE_S, Ran, environment, here
from tiny_hub import COMMIT

from batchrun.backends.llamacpp import quiet_log
from batchrun.catalogue.card import card, written_licence
from batchrun.catalogue.folder_files import ggufs, shards
from batchrun.catalogue.found import found, in_folder
from batchrun.catalogue.making import convert, quantize
from batchrun.errors import ModelError, UsageError


def models(folder: Path, *arguments: str | Path, home: Path | None = None) -> Ran:
    home = home or folder
    return here(
        folder, "models", *arguments, engine="", HOME=str(home), XDG_CACHE_HOME=str(home / ".cache"), COLUMNS="200"
    )


def silent(text: str) -> None:
    pass


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", Tiny(kind="F16"))


def write_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x" * 10)
    return folder


# -- list


def test_models_are_found_wherever_people_keep_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = tmp_path / "hub" / "models--owner--tiny"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text(COMMIT)
    snapshot = hub / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (hub / "blobs").mkdir()
    (hub / "blobs" / "a").write_bytes(b"GGUF" * 10)
    (snapshot / "tiny.gguf").symlink_to(hub / "blobs" / "a")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    home, work = tmp_path / "home", tmp_path / "work"
    (home / "models" / "deep").mkdir(parents=True)
    work.mkdir()
    for path in (home / "models" / "deep" / "a.gguf", work / "b.gguf", work / "mmproj-b.gguf", work / "c.txt"):
        path.write_bytes(b"GGUF")
    for number in (1, 2):
        (work / f"big-0000{number}-of-00002.gguf").write_bytes(b"GGUF" * number)
    write_folder(work / "folder")
    listed = json.loads(models(work, "list", "--json", home=home).out)
    found = {each["name"]: (each["kind"], each["size_bytes"], each["place"]) for each in listed}
    assert found.pop("smollm2")[0] == "GGUF"
    assert found == {
        "hf:owner/tiny/tiny.gguf": ("GGUF", 40, "hub cache"),
        "b.gguf": ("GGUF", 4, "."),
        "big-00001-of-00002.gguf": ("GGUF", 12, "."),
        "folder": ("MLX", 10, "."),
        str(home / "models" / "deep" / "a.gguf"): ("GGUF", 4, str(home / "models")),
    }
    shown = models(work, "list", home / "models", home=home).out
    assert "a.gguf" in shown
    assert "b.gguf" not in shown
    assert models(work, "list", "nowhere").err == "batchrun: nowhere is no folder; expected one that holds models\n"


def test_a_name_with_escapes_is_shown_as_text(tmp_path: Path) -> None:
    (tmp_path / "\x1b[31mred.gguf").write_bytes(b"GGUF")
    shown = models(tmp_path, "list").out
    assert "\\x1b[31mred.gguf" in shown
    assert "\x1b" not in shown


def test_what_cannot_be_read_is_passed_over_and_links_that_lead_nowhere_are_no_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.gguf").write_bytes(b"GGUF")
    (tmp_path / "page.gguf").write_text("<html>")
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round.gguf").symlink_to(tmp_path / "round.gguf")
    ran = models(tmp_path, "list", ".", "--json")
    assert ran.status == 0, ran.err
    assert [each["name"] for each in json.loads(ran.out) if each["place"] == "."] == ["below/a.gguf"]
    monkeypatch.chdir(tmp_path)
    with nobody_may_read(Path("below")):
        assert not list(in_folder(Path(), depth=0))
        with pytest.raises(UsageError, match="below: Permission denied; expected a folder that holds models"):
            found((Path("below"),))


@contextmanager
def nobody_may_read(folder: Path) -> Iterator[None]:
    """Takes the right to a folder and all in it from us, also where we are root."""
    user, mode = os.geteuid(), folder.stat().st_mode
    folder.chmod(0)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(mode)


def test_models_are_listed_where_there_is_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert "smollm2" in models(tmp_path, "list").out


# -- info


def test_the_embedded_model_says_what_it_is(tmp_path: Path) -> None:
    said = json.loads(models(tmp_path, "info", "smollm2", "--json").out)
    assert said["architecture"] == "llama"
    assert said["quantisation"] == "q4_1"
    assert said["licence"] == "apache-2.0"
    assert said["context_tokens"] == 8192
    assert said["parameters"] == 134_515_008
    assert "<|im_end|>" in said["stop_tokens"]
    assert said["rendered"].endswith("<|im_start|>user\nPROMPT<|im_end|>\n<|im_start|>assistant\n")
    shown = models(tmp_path, "info").out
    for words in (
        "135 million",
        "q4_1, 5.8 bits a weight",
        "8,192 tokens",
        "apache-2.0",
        r"PROMPT<|im_end|>\n",
        "98.4 MB",
    ):
        assert words in shown


def test_a_file_that_says_no_licence_has_that_of_the_card_beside_it(tiny: Path) -> None:
    assert card(str(tiny)).licence is None
    readme = tiny.with_name("README.md")
    readme.write_text("---\nlicense: other\nlicense_name: qwen\n---\nlicense: not this\n")
    said = card(str(tiny))
    assert (said.licence, said.quantisation, said.template) == ("qwen", "f16", TEMPLATE)
    readme.write_text("no front matter\n")
    assert written_licence(tiny) is None


def test_what_is_no_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and no more")
    for name in ("broken.gguf", "absent.gguf"):
        ran = models(tmp_path, "info", name)
        assert ran.status == 5
        assert name in ran.err
        assert ran.err.count("\n") == 1


# -- quantize and convert


def test_a_model_is_written_in_another_format_and_nothing_is_overwritten(tmp_path: Path, tiny: Path) -> None:
    out = tmp_path / "small.gguf"
    ran = models(tmp_path, "quantize", tiny, "--to", "Q8_0", "-o", out)
    assert (ran.status, ran.out) == (0, f"{out}\n"), ran.err
    assert card(str(out)).quantisation == "q8_0"
    assert out.stat().st_size < tiny.stat().st_size
    assert "--force" in models(tmp_path, "quantize", tiny, "--to", "q4_0", "-o", out).err
    ran = models(tmp_path, "quantize", out, "--to", "q4_0", "-o", tmp_path / "smaller.gguf", "--force")
    assert "small.gguf is q8_0 already, so numbers are rounded twice" in ran.err
    assert sorted(path.name for path in tmp_path.glob("*.gguf")) == ["small.gguf", "smaller.gguf", "tiny.gguf"]


def test_an_unknown_format_is_refused_with_those_there_are(tmp_path: Path, tiny: Path) -> None:
    with pytest.raises(UsageError, match=r"expected f32, f16, bf16, q8_0, q6_k"):
        quantize(str(tiny), "q9", tmp_path / "x.gguf", force=False, say=silent)
    with pytest.raises(UsageError, match="is the model itself"):
        quantize(str(tiny), "q8_0", tiny, force=True, say=silent)


def test_a_place_that_cannot_be_written_is_said_before_any_work(tmp_path: Path, tiny: Path) -> None:
    ran = models(tmp_path, "quantize", tiny, "--to", "q8_0", "-o", "none/x.gguf")
    assert (ran.status, ran.err) == (6, "batchrun: none/x.gguf cannot be written: No such file or directory\n")
    for arguments in (["convert", "whole", "-o"], ["quantize", "whole", "--to", "4bit", "-o"]):
        if not (tmp_path / "whole").exists():
            write_folder(tmp_path / "whole")
        ran = models(tmp_path, *arguments, "tiny.gguf/out")
        assert (ran.status, ran.err) == (6, "batchrun: tiny.gguf/out cannot be written: Not a directory\n")


def test_a_warning_of_llama_cpp_is_not_given_as_the_reason_of_a_failure() -> None:
    log = quiet_log()
    log.clear()
    log._take(3, b"control token is not marked as EOG", None)  # type: ignore[arg-type]
    assert log.reason() == "no reason given"
    log._take(4, b"invalid magic", None)  # type: ignore[arg-type]
    assert log.reason() == "invalid magic"
    log.clear()


def test_a_gguf_is_never_made_of_a_folder_and_the_way_to_one_is_said(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    with pytest.raises(UsageError, match=r"convert_hf_to_gguf\.py"):
        convert(str(folder), tmp_path / "x.gguf", say=silent)
    with pytest.raises(UsageError, match="-o is missing"):
        convert(str(folder), None, say=silent)
    with pytest.raises(UsageError, match="expected a folder that is not"):
        convert(str(folder), folder, say=silent)
    with pytest.raises(ModelError, match="is no folder of safetensors"):
        convert(str(tmp_path), tmp_path / "out", say=silent)


def test_a_gguf_is_prepared_for_mlx_in_the_cache(tmp_path: Path, tiny: Path) -> None:
    pytest.importorskip("mlx_lm")
    ran = models(tmp_path, "convert", tiny)
    assert ran.status == 0, ran.err
    assert (Path(ran.out.strip()) / "model.safetensors").is_file()
    assert "where --engine mlx looks for them" in models(tmp_path, "convert", tiny, "-o", tmp_path / "out").err


def test_a_folder_of_safetensors_becomes_an_mlx_folder_of_fewer_bits(tmp_path: Path) -> None:
    pytest.importorskip("mlx_lm")
    from hf_folder import write_hf_folder

    folder = write_hf_folder(tmp_path / "whole")
    whole, small = tmp_path / "mlx", tmp_path / "small"
    assert models(tmp_path, "convert", folder, "-o", whole).out == f"{whole}\n"
    assert models(tmp_path, "quantize", folder, "--to", "4bit", "-o", small).out == f"{small}\n"
    found = card(str(small))
    assert (found.kind, found.architecture, found.quantisation) == ("MLX", "llama", "4bit")
    assert found.size_bytes < card(str(whole)).size_bytes
    assert "is quantised already" in models(tmp_path, "quantize", small, "--to", "4bit", "-o", tmp_path / "x").err
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == [
        "mlx",
        "small",
        "whole",
    ]


@pytest.mark.parametrize("name", ["~nosuch/x", "x" * 5000])
@pytest.mark.parametrize("command", ["info", "convert", "quantize"])
def test_a_name_that_is_no_path_is_one_line(tmp_path: Path, command: str, name: str) -> None:
    more = ["--to", "q8_0", "-o", "x.gguf"] if command == "quantize" else []
    ran = models(tmp_path, command, name, *more)
    assert (ran.status, ran.err.count("\n")) == (5, 1)
    assert "is no path" in ran.err


def test_a_folder_with_an_empty_configuration_is_one_line(tmp_path: Path) -> None:
    (write_folder(tmp_path / "folder") / "config.json").write_text("")
    ran = models(tmp_path, "quantize", "folder", "--to", "4bit", "-o", "x")
    assert ran.err.startswith("batchrun: folder/config.json cannot be read: ")
    assert (ran.status, ran.err.count("\n")) == (5, 1)


def test_a_gguf_is_opened_elsewhere_before_it_is_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.gguf").write_bytes(b"GGUF")

    def aborts(path: Path, *_: object) -> None:
        raise ModelError(f"{path.name} makes llama.cpp end by SIGABRT; expected a sound GGUF file")

    monkeypatch.setattr("batchrun.catalogue.making.probe", aborts)
    assert "odd.gguf makes llama.cpp end by SIGABRT" in models(tmp_path, "convert", "odd.gguf").err


@pytest.mark.parametrize("command", ["info", "convert", "quantize"])
def test_without_llama_cpp_a_gguf_is_one_line_with_the_way_to_it(tmp_path: Path, tiny: Path, command: str) -> None:
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text("import sys\nsys.modules['llama_cpp'] = None\n")
    more = ["--to", "q8_0", "-o", "x.gguf"] if command == "quantize" else []
    path = os.pathsep.join([str(hiding), *filter(None, sys.path)])
    ran = subprocess.run(
        [*COMMAND, "models", command, str(tiny), *more],
        env=environment(PYTHONPATH=path),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 5
    assert ran.stderr == "batchrun: the llama.cpp engine is not installed; run: pip install llama-cpp-python\n"


# -- names of files


def test_a_model_in_parts_starts_from_its_first_one() -> None:
    parts = ["x-00001-of-00003.gguf", "x-00002-of-00003.gguf", "x-00003-of-00003.gguf"]
    assert shards(parts[0]) == parts
    assert shards("x.gguf") == ["x.gguf"]
    assert ggufs(dict.fromkeys([*parts, "a/mmproj-x.gguf", "b.gguf", "c.txt"])) == ["b.gguf", parts[0]]
