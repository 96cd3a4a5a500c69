"""An MLX folder is opened without its weights: tokenizer, template and card, as the same model's GGUF gives."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf_models import CONTROL, TEMPLATE, Tiny, vocabulary, write_gguf
from shell import batchrun, write_jobs

pytest.importorskip("mlx_lm", reason="needs the mlx extra")

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from batchrun.backends.llamacpp_model import LlamaModel
from batchrun.backends.mlx_device import MlxOptions
from batchrun.backends.mlx_gguf import converted
from batchrun.backends.mlx_model import MlxFolder
from batchrun.config import Settings
from batchrun.core import Message
from batchrun.engines import engine_for
from batchrun.errors import ModelError
from batchrun.models import identity, locate

TEXTS = ["the thing", "<|im_start|>x<|im_end|>", "grün 東京 🙂", "", "  two  spaces\n\n"]
CONFIG: dict[str, Any] = {
    "bos_token": "<|im_start|>",
    "eos_token": {"content": "<|im_end|>"},
    "add_bos_token": False,
    "chat_template": TEMPLATE,
}


def write_tokenizer(folder: Path, config: dict[str, Any] = CONFIG, *, post_processor: bool = False) -> None:
    """The tiny GGUF's vocabulary as Hugging Face writes it."""
    tokens, _ = vocabulary()
    plain = {token: number for number, token in enumerate(tokens) if token not in CONTROL}
    tokenizer = Tokenizer(models.BPE(vocab=plain, merges=[("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in CONTROL])
    if post_processor:
        start = ("<|im_start|>", tokens.index("<|im_start|>"))
        tokenizer.post_processor = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[start])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tiny GGUF, converted, with a tokenizer beside its weights."""
    made = converted(write_gguf(tmp_path / "tiny.gguf", Tiny()), "tiny", tmp_path)
    write_tokenizer(made)
    return made


@pytest.fixture
def llama(tmp_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(write_gguf(tmp_path / "same.gguf", Tiny()), "tiny", "tiny")
    yield model
    model.close()


def opened(folder: Path) -> MlxFolder:
    return MlxFolder(folder, "tiny", "tiny", MlxOptions())


def test_a_folder_and_a_gguf_of_one_model_are_one_model(folder: Path, llama: LlamaModel) -> None:
    model = opened(folder)
    one, other = model.tokenizer, llama.tokenizer
    for text in TEXTS:
        for control in (True, False):
            tokens = other.encode(text, control=control)
            assert one.encode(text, control=control) == tokens
            assert one.decode(tokens) == other.decode(tokens)
    assert one.stop_tokens == other.stop_tokens
    assert (one.vocab, set(one.control_texts)) == (other.vocab, set(other.control_texts))
    turns = [Message("system", "Be brief."), Message("user", "Why?")]
    assert model.template.render(turns) == llama.template.render(turns)
    assert model.template.text == llama.template.text
    assert (model.card.context_train, model.card.cell_bytes) == (llama.card.context_train, llama.card.cell_bytes)
    assert abs(model.card.weights_bytes / llama.card.weights_bytes - 1) < 0.1


def test_half_a_character_is_kept_as_bytes(folder: Path) -> None:
    tokenizer = opened(folder).tokenizer
    tokens = tokenizer.encode("é", control=False)
    assert tokenizer.decode(tokens[:1]) == "é".encode()[:1]


@pytest.mark.parametrize(
    ("config", "post_processor", "bos"),
    [
        (CONFIG, True, False),
        (CONFIG | {"add_bos_token": True}, False, True),
        (CONFIG | {"add_bos_token": None}, True, True),
        (CONFIG | {"add_bos_token": None}, False, False),
        (CONFIG | {"add_bos_token": True, "bos_token": None}, False, False),
    ],
)
def test_a_beginning_is_added_once_where_the_model_wants_one(
    folder: Path, config: dict[str, Any], post_processor: bool, bos: bool
) -> None:
    write_tokenizer(folder, config, post_processor=post_processor)
    tokenizer = opened(folder).tokenizer
    start = tokenizer.encode("<|im_start|>", control=True)[0]
    assert tokenizer.with_bos([65]) == ([start, 65] if bos else [65])
    assert tokenizer.with_bos([start, 65]) == [start, 65]


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_ends_are_taken_from_wherever_they_stand(folder: Path, file: str) -> None:
    before = opened(folder).tokenizer.stop_tokens
    path = folder / file
    config = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(config | {"eos_token_id": [65, 66]}))
    assert opened(folder).tokenizer.stop_tokens == before | {65, 66}


def test_a_template_may_be_a_file_of_its_own_or_one_of_several(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ 'file' }}")
    assert opened(folder).template.text == "{{ 'file' }}"
    (folder / "chat_template.jinja").unlink()
    several = [{"name": "tool", "template": "no"}, {"name": "default", "template": "{{ 'yes' }}"}]
    write_tokenizer(folder, CONFIG | {"chat_template": several})
    assert opened(folder).template.text == "{{ 'yes' }}"


def test_without_a_template_prompts_are_plain_and_that_is_said(folder: Path) -> None:
    write_tokenizer(folder, {})
    model = opened(folder)
    assert model.template.render([Message("user", "Hi")]) == "Hi\n\n"
    assert "no chat template" in model.card.notices[0]


def test_the_logits_may_be_wider_than_the_vocabulary(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 320}))
    tokenizer = opened(folder).tokenizer
    assert tokenizer.vocab == tokenizer.for_guide().vocab_size == 320


# -- as a model's name


def test_a_folder_is_found_by_its_path_and_known_by_its_content(folder: Path) -> None:
    assert locate(str(folder)) == folder
    before = identity(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 2e-5}))
    assert identity(folder) != before


@pytest.mark.parametrize("engine", ["auto", "llamacpp"])
def test_llamacpp_does_not_take_a_folder_and_says_what_does(folder: Path, engine: str) -> None:
    with pytest.raises(ModelError, match="expected --engine mlx"):
        engine_for(Settings(model=str(folder), engine=engine), folder)


def test_auto_is_mlx_on_apple_silicon(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchrun.engines.sys.platform", "darwin")
    monkeypatch.setattr("batchrun.engines.platform.machine", lambda: "arm64")
    assert engine_for(Settings(model=str(folder)), folder) == "mlx"


def test_a_run_on_a_folder_answers_as_its_gguf_does(folder: Path, tmp_path: Path) -> None:
    schema = {"type": "string", "maxLength": 9}  # no stray bytes: those of no character show in different ways
    write_jobs(tmp_path / "jobs.jsonl", [{"prompt": f"job {n}", "max_tokens": 40, "schema": schema} for n in range(3)])
    outputs = []
    for model in (folder, tmp_path / "tiny.gguf"):
        run = batchrun(
            tmp_path,
            *("run", "jobs.jsonl", "-o", "-", "--model", model),
            engine="mlx",
            XDG_CACHE_HOME=str(tmp_path / "cache"),
        )
        assert run.status in (0, 3)
        outputs.append(sorted((record["id"], record["output"]) for record in run.records))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("tokenizer.json", None, "no tokenizer.json"),
        ("tokenizer.json", "{}", "tokenizer.json cannot be read"),
        ("tokenizer_config.json", "{", "cannot be read"),
        ("tokenizer_config.json", '{"chat_template": "{% if %}"}', "template of .* is broken"),
        ("model.safetensors", None, "no model"),
        ("model.safetensors", "x" * 40, "no safetensors file"),
    ],
)
def test_a_broken_folder_is_one_line(folder: Path, file: str, content: str | None, reason: str) -> None:
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(ModelError, match=reason) as caught:
        opened(folder)
    assert "\n" not in str(caught.value)


def test_another_number_format_is_for_gguf_files(folder: Path, tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [{"prompt": "job"}])
    run = batchrun(tmp_path, "run", "jobs.jsonl", "-o", "-", "--model", folder, "--weights", "q4_0", engine="mlx")
    assert run.status == 5
    assert "an MLX folder is used as it is" in run.err


HEADERS = {
    "is longer than the file": struct.pack("<Q", 1 << 62) + b"{}",
    "is a list": struct.pack("<Q", 2) + b"[]",
    "has a number for a tensor": struct.pack("<Q", 7) + b'{"a":1}',
    "has a tensor without a shape": struct.pack("<Q", 8) + b'{"a":{}}',
    "has a shape of words": struct.pack("<Q", 35) + b'{"a":{"shape":["x"],"dtype":"F16"}}',
    "is no JSON": struct.pack("<Q", 1) + b"{",
    "is missing": b"",
}


@pytest.mark.parametrize("fault", sorted(HEADERS))
def test_weights_whose_header_makes_no_sense_are_refused_in_one_line(folder: Path, fault: str) -> None:
    path = next(folder.glob("model*.safetensors"))
    path.write_bytes(HEADERS[fault])
    with pytest.raises(ModelError, match=r"model.*\.safetensors is no safetensors file: .") as caught:
        opened(folder)
    assert "\n" not in str(caught.value)
