"""Models come from the hub once, go on where a fetch was stopped, and are what the hub says they are."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from shell import COMMAND, PATIENCE_S, Ran, environment
from tiny_hub import COMMIT, REPOSITORY, TinyHub, serving

NAME = f"hf:{REPOSITORY}/tiny.gguf"
WEIGHTS = b"GGUF" + bytes(range(256)) * 800
LARGE = WEIGHTS * 100
CHUNK_BYTES = 10 << 20  # that the hub's library writes at a time


@pytest.fixture
def hub() -> Iterator[TinyHub]:
    files = {"tiny.gguf": WEIGHTS, "README.md": b"---\nlicense: apache-2.0\n---\n", "mmproj-tiny.gguf": b"GGUF"}
    with serving(TinyHub(files)) as hub:
        yield hub


def models(home: Path, hub: TinyHub, *arguments: str) -> Ran:
    run = subprocess.run(
        [*COMMAND, "models", *arguments],
        cwd=home,
        capture_output=True,
        text=True,
        env=environment(**hub.environment(home)),
        timeout=PATIENCE_S,
        check=False,
    )
    return Ran(run.returncode, run.stdout, run.stderr)


def partials(home: Path) -> list[Path]:
    return list(home.rglob("*.incomplete"))


def test_a_model_is_fetched_once_and_lies_where_every_program_of_the_hub_looks(tmp_path: Path, hub: TinyHub) -> None:
    ran = models(tmp_path, hub, "pull", NAME)
    assert ran.status == 0, ran.err
    path = Path(ran.out.strip())
    assert path.parent.name == COMMIT
    assert path.read_bytes() == WEIGHTS
    assert path.with_name("README.md").is_file(), "the card says the licence"
    assert "checksum right; use it: batchrun run JOBS --model hf:owner/tiny/tiny.gguf" in ran.err
    fetched = len(hub.ranges)
    again = models(tmp_path, hub, "pull", NAME)
    assert (again.status, again.out, len(hub.ranges)) == (0, ran.out, fetched)


def test_a_cut_connection_is_taken_up_where_it_broke(tmp_path: Path, hub: TinyHub) -> None:
    hub.files["tiny.gguf"], hub.cut_at = LARGE, [CHUNK_BYTES + 99]
    ran = models(tmp_path, hub, "pull", NAME)
    assert ran.status == 0, ran.err
    assert Path(ran.out.strip()).read_bytes() == LARGE
    assert [asked for name, asked in hub.ranges if name == "tiny.gguf"] == [None, f"bytes={CHUNK_BYTES}-"]


def test_a_fetch_that_failed_goes_on_in_another_process(tmp_path: Path, hub: TinyHub) -> None:
    hub.files["tiny.gguf"] = LARGE
    hub.cut_at, hub.fails_after_cuts = [CHUNK_BYTES + 99], True
    ran = models(tmp_path, hub, "pull", NAME)
    assert ran.status == 5
    assert ran.out == ""
    assert f"what came is kept, the same command goes on: batchrun models pull {NAME}" in ran.err
    assert [path.stat().st_size for path in partials(tmp_path)] == [CHUNK_BYTES]
    hub.broken = hub.fails_after_cuts = False
    ran = models(tmp_path, hub, "pull", NAME)
    assert ran.status == 0, ran.err
    assert "going on at 10.5 MB of 20.5 MB" in ran.err
    assert hub.ranges[-2] == ("tiny.gguf", f"bytes={CHUNK_BYTES}-")
    assert Path(ran.out.strip()).read_bytes() == LARGE
    assert not partials(tmp_path)


def test_a_fetch_that_is_interrupted_says_so_and_keeps_what_came(tmp_path: Path, hub: TinyHub) -> None:
    hub.files["tiny.gguf"], hub.cut_at, hub.waits = LARGE, [CHUNK_BYTES + 99], Event()
    command = [*COMMAND, "models", "pull", NAME]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment(**hub.environment(tmp_path))
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()  # it has begun
        deadline = time.monotonic() + PATIENCE_S
        while not any(path.stat().st_size for path in partials(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    hub.waits.set()
    assert process.returncode == 130
    assert said == f"batchrun: stopped; what came is kept, the same command goes on: batchrun models pull {NAME}\n"
    assert len(partials(tmp_path)) == 1


def test_what_has_another_checksum_is_not_kept(tmp_path: Path, hub: TinyHub) -> None:
    hub.wrong = True
    ran = models(tmp_path, hub, "pull", NAME)
    assert ran.status == 5
    assert "tiny.gguf came with another checksum than the hub gives for it" in ran.err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size == len(WEIGHTS)]
    hub.wrong = False
    good = Path(models(tmp_path, hub, "pull", NAME).out.strip())
    good.resolve().write_bytes(bytes(len(WEIGHTS)))
    ran = models(tmp_path, hub, "pull", NAME)
    assert "tiny.gguf in the cache is damaged; fetching it again" in ran.err
    assert good.read_bytes() == WEIGHTS


PULL = """
import sys
from batchrun.catalogue.pull import pull
from batchrun.errors import ModelError
for name in sys.argv[1:]:
    try:
        pull(name, print)
    except ModelError as error:
        print(error)
"""


def test_what_is_not_there_is_one_line_with_what_is(tmp_path: Path, hub: TinyHub) -> None:
    said = {
        f"hf:{REPOSITORY}/tyni.gguf": "owner/tiny has no file tyni.gguf; did you mean tiny.gguf?",
        f"hf:{REPOSITORY}": "hf:owner/tiny holds GGUF files; name one of them: hf:owner/tiny/tiny.gguf (0.2 MB)",
        "hf:owner/none/x.gguf": "owner/none is not on the hub, or private",
        "hf:not an owner/x/y.gguf": "cannot be on the hub",
        "hf:owner": "is incomplete",
        "tiny.gguf": "expected hf:owner/repository/file.gguf",
    }
    run = subprocess.run(
        [sys.executable, "-c", PULL, *said],
        capture_output=True,
        text=True,
        env=environment(**hub.environment(tmp_path)),
        timeout=PATIENCE_S,
        check=True,
    )
    lines = run.stdout.splitlines()
    assert len(lines) == len(said)
    for line, words in zip(lines, said.values(), strict=True):
        assert words in line


def test_without_a_network_one_line_says_so(tmp_path: Path) -> None:
    with serving(TinyHub({})) as hub:
        pass  # its port is free again, and nobody listens there
    ran = models(tmp_path, hub, "pull", NAME)
    assert ran.status == 5
    assert ran.err.startswith(f"batchrun: no connection to http://127.0.0.1:{hub.port}")
    assert ran.err.endswith(f"; nothing of it is here yet; try again later: batchrun models pull {NAME}\n")
    assert ran.err.count("\n") == 1, ran.err


def test_a_run_names_the_command_that_fetches_and_never_fetches_itself(tmp_path: Path, hub: TinyHub) -> None:
    (tmp_path / "j.jsonl").write_text('{"prompt": "Hi"}\n')
    run = subprocess.run(
        [*COMMAND, "run", "j.jsonl", "--model", NAME],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(**hub.environment(tmp_path)),
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 5
    assert f"is not in the local cache; fetch it once: batchrun models pull {NAME}\n" in run.stderr
    assert hub.ranges == []


def test_a_folder_for_mlx_comes_whole_and_a_part_of_it_is_not_taken_for_all(tmp_path: Path, hub: TinyHub) -> None:
    index = b'{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'
    hub.files = {
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "model.safetensors.index.json": index,
        "model-1.safetensors": b"1",
        "model-2.safetensors": b"2",
        "pytorch_model.bin": b"no",
        "onnx/config.json": b"{}",
    }
    ran = models(tmp_path, hub, "pull", f"hf:{REPOSITORY}")
    assert ran.status == 0, ran.err
    folder = Path(ran.out.strip())
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "model-1.safetensors",
        "model-2.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ]
    (folder / "model-2.safetensors").unlink()
    check = "from batchrun.models import locate; locate('hf:owner/tiny')"
    run = subprocess.run(
        [sys.executable, "-c", check],
        capture_output=True,
        text=True,
        env=environment(**hub.environment(tmp_path)),
        check=False,
    )
    assert "lacks model-2.safetensors; fetch the rest: batchrun models pull hf:owner/tiny" in run.stderr


def test_a_password_in_the_hubs_address_is_not_shown(tmp_path: Path, hub: TinyHub) -> None:
    address = "http://me:secret@127.0.0.1:1"
    run = subprocess.run(
        [*COMMAND, "models", "pull", NAME],
        capture_output=True,
        text=True,
        env=environment(**hub.environment(tmp_path) | {"HF_ENDPOINT": address}),
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 5
    assert "no connection to http://127.0.0.1:1" in run.stderr
    assert "secret" not in run.stderr
