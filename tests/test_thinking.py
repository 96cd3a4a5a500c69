"""Models that think aloud: the block is closed before the answer, by the prompt or by its budget."""

import pytest
from building import GUIDE, TOKENIZER, schema

from batchrun.backends.fake import END_OF_TEXT
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
