"""Every example of the README runs, or is named here with the reason why not, and every command is told there."""

import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_tree import commands, parse, words_of
from shell import PATIENCE_S, environment, here, write_jobs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = re.compile(r"^```(sh|console)\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"`(batchrun [^`]+)`")
JSON_LINES = "jobs.jsonl", "before.jsonl", "after.jsonl"

TIME = "takes minutes: it measures"
NOT_RUN_HERE = {
    r"batchrun models pull .*": "needs the network",
    r"batchrun models convert FOLDER .*": "needs a folder of safetensors",
    r"batchrun run .*--ray .*": "needs a cluster; test_ray.py has one",
    r"batchrun (bench|tune|calibrate) .*": TIME,
    r"batchrun check .* --estimate": "needs what calibrate measured",
    r"batchrun (run|check) --(?!help)[a-z-]+": "speaks of a flag, for any jobs",
    r"batchrun run .*--engine mlx.*": "needs a model from the network, or minutes on a processor",
    r"batchrun run jobs.jsonl --only-on-ac --until .*": "goes by the hour of the day and the power source",
    r"batchrun doctor --model ~/models/.*": "needs that model",
    r"batchrun --install-completion": "changes the shell's own files; test_help.py does it elsewhere",
    r"batchrun run -( > out)?": "waits for a stream",
}


@dataclass(frozen=True)
class Example:
    line: str

    @property
    def why_not(self) -> str:
        return next((why for form, why in NOT_RUN_HERE.items() if re.fullmatch(form, self.line)), "")

    @property
    def needs_shell(self) -> bool:
        return bool(re.search(r"[|<>*]", re.sub(r"'[^']*'", "", self.line)))


def examples() -> list[Example]:
    """Commands of fenced blocks as they stand, and those between backticks that have arguments; each once."""
    lines = []
    for kind, block in FENCED.findall(README):
        told = [line.removeprefix("$ ") for line in block.splitlines() if kind == "sh" or line.startswith("$ ")]
        lines += [part.strip() for line in told for part in _without_comment(line).split("&&")]
    lines += [line for line in INLINE.findall(README) if not _is_name(line)]
    lines = [re.sub(r"^\.venv/bin/", "", line) for line in lines]
    return [Example(line) for line in dict.fromkeys(lines) if re.search(r"(^|\| )batchrun\b", line)]


def _is_name(line: str) -> bool:
    """Whether a line only names a command, or a group of them."""
    words = tuple(line.split()[1:])
    return any(known[: len(words)] == words for known in commands())


def _without_comment(line: str) -> str:
    return re.sub(r"\s+# .*$", "", line)


EXAMPLES = examples()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the README speaks of."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("jobs", "schemas"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(folder / "schemas" / "contact.json", folder / "schemas" / "note.json")
    shutil.copy(folder / "jobs" / "contacts.jsonl", folder / "jobs.jsonl")
    (folder / "tickets.csv").write_text("id,text\na,the door is stuck\nb,no light\n")
    (folder / "notes").mkdir()
    (folder / "notes" / "one.md").write_text("Ada called from Vienna.\n")
    (folder / "p.txt").write_text("Who called, and from where?")
    (folder / "report.txt").write_text("Sales fell by a tenth.\n")
    body = {"messages": [{"role": "user", "content": "say one"}]}
    request = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": body}
    write_jobs(folder / "batch.jsonl", [request])
    for seed, name in enumerate(("results", "before", "after", "part-1", "part-2")):
        parts = ["--shard", f"{seed - 2}/2"] if name.startswith("part") else []
        ran = here(folder, "run", "jobs/contacts.jsonl", "-o", f"{name}.jsonl", "--seed", str(seed), *parts)
        assert ran.status == 0
    return folder


def test_the_readme_has_examples_and_most_of_them_run_here() -> None:
    assert len([example for example in EXAMPLES if not example.why_not]) > 15


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.line)
def test_every_example_is_a_command_that_there_is(example: Example) -> None:
    for part in example.line.split("| "):
        if part.startswith("batchrun"):
            parse(words_of(part))


@pytest.mark.parametrize("example", [e for e in EXAMPLES if not e.why_not], ids=lambda example: example.line)
def test_every_example_runs_on_the_toy_engine(example: Example, world: Path) -> None:
    if example.needs_shell:
        for program in re.findall(r"\| (\w+)", example.line):
            if not shutil.which(program, path=environment()["PATH"]):
                pytest.skip(f"{program} is not here")
        run = subprocess.run(
            ["bash", "-o", "pipefail", "-c", example.line],
            cwd=world,
            env=environment(BATCHRUN_ENGINE="fake"),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        status, err = run.returncode, run.stderr
    else:
        status, _, err = here(world, *shlex.split(example.line)[1:], engine="", BATCHRUN_ENGINE="fake")
    assert status in (0, 3), err
    assert "Traceback" not in err


def test_every_reason_not_to_run_an_example_is_needed() -> None:
    idle = [form for form in NOT_RUN_HERE if not any(re.fullmatch(form, example.line) for example in EXAMPLES)]
    assert not idle


def test_check_says_of_the_sample_what_the_readme_shows() -> None:
    shown = README.split("$ batchrun check jobs/contacts.jsonl\n")[1].split("plan:")[0]
    said = here(ROOT, "check", "jobs/contacts.jsonl", engine="llamacpp").out
    assert said.split("plan:")[0] == shown


@pytest.mark.parametrize("words", sorted(commands()), ids=" ".join)
def test_every_command_is_told_in_the_readme(words: tuple[str, ...]) -> None:
    assert re.search(rf"`?batchrun {' '.join(words)}\b", README)


def test_whatever_stands_behind_batchrun_in_the_readme_is_a_command() -> None:
    names = {line.split()[1] for line in INLINE.findall(README) if not line.split()[1].startswith("-")}
    assert names <= {words[0] for words in commands()}
