"""What the command line says of itself: an example for each command, versions, and words for a half-typed line."""

import os
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from command_tree import commands, parse, words_of
from shell import PATIENCE_S, environment, here

COMMANDS = commands()


@pytest.mark.parametrize("words", sorted(COMMANDS), ids=" ".join)
def test_the_help_of_each_command_ends_with_an_example_that_parses(words: tuple[str, ...], tmp_path: Path) -> None:
    epilog = COMMANDS[words].epilog or ""
    label, _, example = epilog.partition(":")
    assert label == "Example"
    assert words_of(example.strip())[: len(words)] == list(words)
    parse(words_of(example.strip()))
    run = here(tmp_path, *words, "--help", engine="")
    assert run.status == 0
    assert " ".join(run.out.split()).endswith(" ".join(epilog.split()))


def test_every_option_of_every_command_says_what_it_is() -> None:
    silent = {
        (*words, option.name)
        for words, command in COMMANDS.items()
        for option in command.params
        if not getattr(option, "help", None)
    }
    assert not silent


def test_the_version_names_the_engines(tmp_path: Path) -> None:
    lines = here(tmp_path, "--version", engine="").out.splitlines()
    assert lines[0].startswith("batchrun ")
    assert f"llama-cpp-python {version('llama-cpp-python')}" in lines
    assert f"llguidance {version('llguidance')}" in lines
    assert any(line.startswith("mlx ") for line in lines)
    assert any(line.startswith("Python 3.") for line in lines)


def bash(folder: Path, script: str) -> list[str]:
    run = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=folder,
        env=environment(HOME=str(folder)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return run.stdout.split()


def test_bash_completes_commands_engines_models_and_schemas(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "note.json").write_text("{}")
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    (tmp_path / "sm-no-model.gguf").touch()
    os.mkfifo(tmp_path / "sm-pipe.gguf")
    said = bash(
        tmp_path,
        """
        eval "$(batchrun --show-completion)"
        offer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _batchrun_completion batchrun; echo "${COMPREPLY[@]}" / ; }
        offer batchrun do
        offer batchrun run --engine l
        offer batchrun run --model sm
        offer batchrun run --schema n
        offer batchrun run --on-overflow tr
        offer batchrun report res
        """,
    )
    offered = [part.split() for part in " ".join(said).split("/")]
    assert offered[:-1] == [
        ["doctor"],
        ["llamacpp"],
        ["smollm2", "small.gguf"],
        ["note"],
        ["truncate-middle", "truncate-end"],
        [],  # files, by the shell itself
    ]


def test_completion_is_installed_for_this_shell(tmp_path: Path) -> None:
    bash(tmp_path, "batchrun --install-completion && true")  # so that bash stays, and is seen to be the shell
    assert bash(tmp_path, "source .bashrc; complete -p batchrun")[-1] == "batchrun"
