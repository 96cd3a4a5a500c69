"""Each third-party name stands where it belongs, and what is light to import stays light."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import batchrun

PACKAGE = Path(batchrun.__file__).parent
MODULES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
HOMES = {
    "typer": {
        "bench_commands.py",
        "cli.py",
        "cli_pace.py",
        "doctor_command.py",
        "init_command.py",
        "look_commands.py",
        "model_commands.py",
        "model_options.py",
        "options.py",
        "side_commands.py",
    },
    "tqdm": {"progress.py"},
    "jsonschema": {"schemas.py", "references.py"},
    "referencing": {"schemas.py", "references.py"},
    "jsonschema_specifications": {"references.py"},
    "llama_cpp": {
        "backends/build.py",
        "backends/chat_template.py",
        "backends/llamacpp.py",
        "backends/llamacpp_model.py",
        "backends/llamacpp_weights.py",
        "bench/modes.py",  # the loop that people write without batchrun
    },
    "genson": {"draft/schema.py"},
    "gguf": {"random_model.py"},
    "jinja2": {"backends/chat_template.py", "report/page.py"},
    "markupsafe": {"report/page.py"},
    "plotly": {"report/charts.py", "report/page.py"},
    "rich": {
        "catalogue/show.py",
        "doctor/command.py",
        "live/frame.py",
        "live/screens.py",
        "live/view.py",
        "report/command.py",
        "report/table.py",
        "swarm/cards.py",
        "swarm/command.py",
        "terminal_table.py",
    },
    "mlx": {"backends/mlx_device.py"},
    "mlx_lm": {"backends/mlx_library.py"},
    "ray": {"fleet/ray_connection.py"},
    "tokenizers": {"backends/hf_tokenizer.py"},
    "psutil": {"machine.py", "launcher.py", "thermal/others.py", "thermal/own_time.py"},
    "huggingface_hub": {"catalogue/found.py", "catalogue/pull.py", "models.py"},
    "platformdirs": {"config.py", "models.py", "profile.py", "device_profile.py"},
}
HEAVY = {
    "ray",
    "plotly",
    "llama_cpp",
    "llguidance",
    "numpy",
    "mlx",
    "mlx_lm",
    "transformers",
    "jsonschema",
    "huggingface_hub",
    "tqdm",
}


def imported(path: Path) -> set[str]:
    """Top-level names that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).partition(".")[0])
    return names


def users(name: str) -> set[str]:
    return {module for module, path in MODULES.items() if name in imported(path)}


def loaded(statement: str) -> set[str]:
    """Top-level names of all modules that a statement loads into a fresh interpreter."""
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(run.stdout.splitlines()[-1])}


@pytest.mark.parametrize("name", sorted(HOMES))
def test_a_third_party_name_stands_where_it_belongs(name: str) -> None:
    assert users(name) == HOMES[name]


def test_llguidance_stands_in_the_guide_and_in_the_adapters_of_backends() -> None:
    assert all(module == "guide.py" or module.startswith("backends/") for module in users("llguidance"))


def test_no_other_third_party_name_stands_anywhere() -> None:
    known = {*sys.stdlib_module_names, *HOMES, "batchrun", "llguidance", "numpy"}
    strangers = {module: imported(path) - known for module, path in MODULES.items()}
    assert not {module: names for module, names in strangers.items() if names}


@pytest.mark.parametrize(
    "module", ["heat.py", "heat_model.py", "speed.py", "trust.py", "pacer.py", "permission.py", "duty_sweep.py"]
)
def test_the_modules_of_heat_name_no_third_party(module: str) -> None:
    assert imported(MODULES[module]) <= {*sys.stdlib_module_names, "batchrun"}


@pytest.mark.parametrize(
    "module", ["core.py", "errors.py", "scheduler.py", "sequence.py", "prefix.py", "bursts.py", "governor.py"]
)
def test_the_pure_modules_name_no_third_party(module: str) -> None:
    assert imported(MODULES[module]) <= {*sys.stdlib_module_names, "batchrun"}


def test_the_scheduler_loads_nothing_but_the_standard_library() -> None:
    before, after = loaded("pass"), loaded("import batchrun.scheduler")
    assert after - before - set(sys.stdlib_module_names) == {"batchrun"}


def test_the_command_line_loads_no_model_library() -> None:
    assert not loaded("import batchrun") & HEAVY
    assert not loaded("import batchrun.cli") & HEAVY


@pytest.mark.parametrize("asked", ["--help", "--version"])
def test_help_and_version_load_no_model_library(asked: str) -> None:
    statement = f"sys.argv = ['batchrun', '{asked}']\nfrom batchrun.cli import app\napp(standalone_mode=False)"
    assert not loaded(statement) & HEAVY


def test_completion_loads_no_model_library() -> None:
    words = "import os; os.environ.update(COMP_WORDS='batchrun run --model s', COMP_CWORD='3')"
    asked = "os.environ['_BATCHRUN_COMPLETE'] = 'complete_bash'; sys.argv = ['batchrun']"
    call = "import contextlib\nfrom batchrun.cli import app\nwith contextlib.suppress(SystemExit): app()"
    assert not loaded(f"{words}; {asked}\n{call}") & HEAVY
