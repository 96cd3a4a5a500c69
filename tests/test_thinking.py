"""Models that think aloud: the block is closed before the answer, by the prompt or by its budget."""

from dataclasses import replace

import pytest
from building import GUIDE, TOKENIZER, ScriptedBackend, engine, finish, limits, request, saying, schema

from batchrun.backends.fake import END_OF_TEXT
from batchrun.core import FinishReason, Request
from batchrun.engine import Engine
from batchrun.thinking import ThinkingGrammar, tags_of, with_thinking, without_thinking

TAGS = ("<think>", "</think>")
SWITCHED = "{% if enable_thinking %}<think>{% else %}<think>\n\n</think>{% endif %}"
ALWAYS = "{{ x }}<think>\n ... </think>"


def test_a_template_without_such_a_block_is_left_alone() -> None:
    assert tags_of("{{ messages }}") is None
    assert (
        without_thinking("user: hi\n", "{{ messages }}")
        == with_thinking("user: hi\n", "{{ messages }}")
        == "user: hi\n"
    )


@pytest.mark.parametrize(
    ("rendered", "template", "prompt"),
    [
        ("hi\n<think>\n", ALWAYS, "hi\n<think>\n\n</think>\n\n"),
        ("hi\n", ALWAYS, "hi\n<think>\n\n</think>\n\n"),
        ("hi\n<think>\n\n</think>\n\n", SWITCHED, "hi\n<think>\n\n</think>\n\n"),
        ("hi\n", SWITCHED, "hi\n"),
    ],
)
def test_off_the_block_is_closed_before_it_begins(rendered: str, template: str, prompt: str) -> None:
    assert without_thinking(rendered, template) == prompt


def test_with_a_budget_the_block_is_open() -> None:
    assert with_thinking("hi\n", ALWAYS) == with_thinking("hi\n<think>\n", ALWAYS) == "hi\n<think>\n"


def thought(said: str, budget: int) -> tuple[str, int]:
    """What is forced when thinking ends, and after how many tokens that is."""
    row = ThinkingGrammar(TOKENIZER, TAGS, budget, GUIDE.compile(schema({"const": True}))).start()
    for count, token in enumerate([*said.encode(), END_OF_TEXT], 1):
        accepted = row.accept(token, 1000)
        if accepted.thought:
            assert bytes(accepted.thought.opening) == b"true"
            assert accepted.dropped == (token == END_OF_TEXT)
            return bytes(accepted.forced).decode(), count
    raise AssertionError("it thinks still")


def test_thoughts_end_where_the_model_closes_them() -> None:
    assert thought("hm</think> and more", 100) == ("", len("hm</think>"))


def test_thoughts_end_with_their_budget_and_the_tag_is_taken_out_of_it() -> None:
    forced, count = thought("x" * 100, 30)
    assert forced == "\n</think>\n\n"
    assert count + len(forced) == 30


def test_a_model_that_ends_its_turn_in_its_thoughts_still_answers() -> None:
    assert thought("hm", 100) == ("\n</think>\n\n", 3)


@pytest.mark.parametrize("budget", [1, 5])
def test_a_budget_that_does_not_hold_the_tag_is_as_large_as_the_tag_and_one_thought(budget: int) -> None:
    forced, count = thought("xyz", budget)
    assert (forced, count) == ("\n</think>\n\n", 1)
    assert ThinkingGrammar(TOKENIZER, TAGS, budget, None).budget_tokens == count + len(forced)


# -- in the engine

PROMPT = "prompt"


def thinking(said: bytes, stop: tuple[str, ...] = ()) -> tuple[Engine, Request]:
    """An engine with one free answer under way, of a model that says this, thoughts first."""
    grammar = ThinkingGrammar(TOKENIZER, TAGS, 50, None)
    running = engine(ScriptedBackend(limits(), saying(PROMPT, said)))
    wanted = replace(request(PROMPT, 40, grammar=grammar, stop=stop), thinking_tokens=grammar.budget_tokens)
    running.submit([wanted])
    return running, wanted


def test_a_stop_string_stops_and_cuts_the_answer_and_not_the_thoughts() -> None:
    running, _ = thinking(b"the END</think>one END two", stop=("END",))
    (completion,) = finish(running)
    assert (completion.text, completion.finish_reason) == ("one ", FinishReason.STOP)


def test_who_is_ended_in_its_thoughts_has_not_answered() -> None:
    running, wanted = thinking(b"hm, let me see" * 2)
    for _ in range(10):
        assert not running.step()
    completion = running.cancel(wanted)
    assert completion
    assert completion.usage.completion_tokens > 0
    assert completion.text == ""
