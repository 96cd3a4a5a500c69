"""Copies of weights in other number formats, and models with random weights."""

from pathlib import Path

import pytest

from batchrun.assembly import open_model
from batchrun.backends.llamacpp_weights import copy_in_format
from batchrun.config import Settings
from batchrun.errors import ModelError
from batchrun.models import identity, locate
from batchrun.random_model import written


def test_a_copy_is_made_once_and_the_original_is_left_alone(tmp_path: Path) -> None:
    original = locate("smollm2")
    before = identity(original)
    first = copy_in_format(original, before, "q8_0", tmp_path)
    second = copy_in_format(original, before, "q8_0", tmp_path)
    assert (first.made, second.made) == (True, False)
    assert first.path == second.path
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]
    assert identity(original) == before != identity(first.path)


def test_a_file_that_is_no_model_gives_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and then nothing that makes sense")
    with pytest.raises(ModelError, match=r"broken\.gguf"):
        copy_in_format(broken, "0" * 64, "q8_0", tmp_path / "copies")
    assert list((tmp_path / "copies").iterdir()) == []


def test_the_embedded_model_falls_back_to_its_own_weights_where_no_copy_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setattr("batchrun.assembly.cache_folder", lambda: blocked)
    model = open_model(Settings())
    assert model.card.name == "smollm2"
    assert "using the weights as they are" in model.card.notices[0]
    model.close()
    with pytest.raises(ModelError, match="cannot hold a copy"):
        open_model(Settings(weights="q8_0"))


def test_a_random_model_is_written_once_and_speaks_the_embedded_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchrun.assembly.cache_folder", lambda: tmp_path)
    model = open_model(Settings(model="random:0.1b"))
    embedded = open_model(Settings(weights="as-is"))
    assert model.tokenizer.encode("harbour", control=False) == embedded.tokenizer.encode("harbour", control=False)
    assert [path.name for path in tmp_path.iterdir()] == ["random-0.1b.q8_0.gguf"]
    model.close()
    embedded.close()


def test_an_unknown_size_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"random: and one of 0\.1b"):
        written("random:99b", locate("smollm2"), tmp_path)
