"""Trails follow copied text and nothing else; proposals are made where they pay."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.lookup import (
    FIRST_HIT_SHARE,
    KEY_TOKENS,
    LENGTHS,
    LONGEST_RUN,
    Prices,
    Record,
    Trail,
    chosen,
    matching,
)

quick = settings(deadline=None, max_examples=300)
tokens = st.lists(st.integers(0, 3), max_size=60)
FREE = Prices(pass_s=0.0, row_s=1.0, token_s=0.0)


def trail(text: str) -> tuple[Trail, list[int]]:
    said = list(text.encode())
    return Trail(said), said


def ahead(followed: Trail, count: int = 100) -> str:
    return bytes(followed.ahead(count)).decode()


def say(followed: Trail, said: list[int], text: str) -> None:
    said += text.encode()
    followed.follow()


# -- trails


def test_an_answer_that_begins_to_copy_is_on_a_trail() -> None:
    followed, said = trail("the quick brown fox. Answer:")
    assert not followed.found
    say(followed, said, "qui")
    assert (followed.found, followed.run) == (True, KEY_TOKENS)
    assert ahead(followed, 8) == "ck brown"


def test_a_trail_is_followed_token_by_token() -> None:
    followed, said = trail("the quick brown fox. Answer:qui")
    for run, token in enumerate("ck bro", KEY_TOKENS + 1):
        assert followed.says(ord(token))
        assert not followed.says(ord("!"))
        say(followed, said, token)
        assert followed.run == run
    assert ahead(followed, 5) == "wn fo"


def test_many_tokens_at_once_are_followed_as_one_by_one() -> None:
    followed, said = trail("the quick brown fox. Answer:")
    say(followed, said, "quick bro")
    assert (followed.run, ahead(followed, 2)) == (9, "wn")


def test_an_answer_that_says_something_else_has_lost_its_trail() -> None:
    followed, said = trail("the quick brown fox. Answer:quick")
    say(followed, said, "ly")
    assert not followed.found
    assert followed.ahead(5) == ()
    assert not followed.says(ord("b"))


def test_an_answer_finds_another_trail_when_it_copies_again() -> None:
    followed, said = trail("the quick brown fox, the lazy dog. Answer:quick?")
    say(followed, said, "laz")
    assert (followed.run, ahead(followed, 5)) == (KEY_TOKENS, "y dog")


def test_a_trail_that_is_left_for_another_known_place_is_found_at_once() -> None:
    followed, said = trail("abcde xbcfg. Answer:abc")
    assert ahead(followed, 2) in ("de", "fg")
    followed, said = trail("abcde bcfgh. Answer:abc")
    say(followed, said, "f")
    assert (followed.run, ahead(followed, 2)) == (KEY_TOKENS, "gh")


def test_where_a_text_stood_twice_the_last_time_leads() -> None:
    followed, _ = trail("key: old. key: new. key")
    assert ahead(followed, 5) == ": new"


def test_a_prompt_that_repeats_itself_at_its_end_is_on_a_trail_at_once() -> None:
    followed, _ = trail("one, two, three, one, two")
    assert ahead(followed, 7) == ", three"


def test_no_proposal_is_longer_than_what_was_said() -> None:
    followed, said = trail("aaaa")
    assert ahead(followed, 50) == "a"
    say(followed, said, "aaaa")
    assert set(ahead(followed, 50)) == {"a"}
    assert trail("")[0].ahead(5) == ()
    assert not trail("ab")[0].found


@quick
@given(tokens, tokens)
def test_what_a_trail_says_depends_on_what_was_said_and_not_on_how_it_came(prompt: list[int], more: list[int]) -> None:
    grown = list(prompt)
    followed = Trail(grown)
    for token in more:
        grown.append(token)
        followed.follow()
    at_once = Trail([*prompt, *more])
    assert (followed.found, followed.ahead(20)) == (at_once.found, at_once.ahead(20))
    assert not followed.found or followed.run == at_once.run


@quick
@given(tokens, st.integers(1, 20))
def test_a_trail_never_looks_at_the_future_and_stands_behind_what_the_answer_ended_with(
    said: list[int], count: int
) -> None:
    """What it proposes followed an earlier place at which the last three tokens, and as many as `run`, stood too."""
    followed = Trail(list(said))
    if not followed.found:
        assert followed.ahead(count) == ()
        return
    proposed = list(followed.ahead(count))
    assert 1 <= len(proposed) <= count
    run = followed.run
    places = [
        place
        for place in range(run, len(said))
        if said[place - run : place] == said[len(said) - run :] and said[place : place + count] == proposed
    ]
    assert places


@quick
@given(tokens)
def test_an_answer_whose_last_three_tokens_stood_before_is_on_a_trail(said: list[int]) -> None:
    last = said[-KEY_TOKENS:]
    stood = [said[at : at + KEY_TOKENS] for at in range(len(said) - KEY_TOKENS)]
    if len(last) == KEY_TOKENS and last in stood:
        assert Trail(list(said)).found


# -- the record


def test_a_record_begins_with_a_guess_and_moves_to_what_it_sees() -> None:
    record = Record()
    assert record.expected(5, 1) == FIRST_HIT_SHARE
    for _ in range(200):
        record.saw(5, True)
        record.saw(3, False)
    assert record.expected(5, 8) == pytest.approx(8, rel=0.01)
    assert record.expected(3, 8) == pytest.approx(0, abs=0.01)


def test_a_record_of_one_length_says_nothing_of_another() -> None:
    record = Record()
    record.saw(5, True)
    assert record.expected(4, 1) == FIRST_HIT_SHARE < record.expected(5, 1)


def test_very_long_trails_count_as_one_length() -> None:
    record = Record()
    record.saw(LONGEST_RUN + 50, True)
    assert record.expected(LONGEST_RUN, 4) == record.expected(LONGEST_RUN + 7, 4) > record.expected(3, 4)


def test_of_a_longer_proposal_more_is_expected_to_stand_but_never_all() -> None:
    expected = [Record().expected(5, length) for length in range(1, 17)]
    assert expected == sorted(set(expected))
    assert all(tokens < length for length, tokens in enumerate(expected, 1))


@quick
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=100), st.integers(0, 40), st.integers(1, 16))
def test_an_expectation_is_between_nothing_and_all(seen: list[tuple[int, bool]], run: int, length: int) -> None:
    record = Record()
    for length_seen, hit in seen:
        record.saw(length_seen, hit)
    assert 0 <= record.expected(run, length) <= length


# -- who proposes


def proven(hits: float = 0.95, run: int = 8) -> Record:
    record = Record()
    for number in range(2000):
        record.saw(run, number * 37 % 100 < 100 * hits)
    return record


def test_where_tokens_are_free_everybody_on_a_trail_proposes_the_longest() -> None:
    assert chosen([(0, 5), (3, 9)], 4, FREE, Record()) == ({0, 3}, LENGTHS[-1])


def test_nobody_proposes_where_a_token_costs_as_much_as_a_row() -> None:
    prices = Prices(pass_s=0.0, row_s=0.01, token_s=0.01)
    assert chosen([(0, 8), (1, 8)], 2, prices, proven(0.99)) == (set(), 0)


def test_nobody_proposes_where_nobody_is_on_a_trail() -> None:
    assert chosen([], 4, FREE, Record()) == (set(), 0)


def test_a_lone_row_proposes_where_a_pass_is_what_costs() -> None:
    prices = Prices(pass_s=0.1, row_s=0.01, token_s=0.01)
    slots, length = chosen([(0, 8)], 1, prices, proven())
    assert slots == {0}
    assert length in LENGTHS


def test_a_row_whose_trail_was_mostly_wrong_does_not_propose() -> None:
    prices = Prices(pass_s=0.1, row_s=0.01, token_s=0.01)
    assert chosen([(0, 8)], 1, prices, proven(0.05)) == (set(), 0)


def test_only_rows_whose_trails_are_good_propose() -> None:
    record = proven(0.95, run=8)
    for _ in range(200):
        record.saw(3, False)
    prices = Prices(pass_s=0.02, row_s=0.02, token_s=0.015)
    slots, _ = chosen([(0, 8), (1, 3), (2, 8)], 3, prices, record)
    assert slots == {0, 2}


def test_one_row_among_many_does_not_propose_where_that_takes_a_pass_more_for_little() -> None:
    prices = Prices(pass_s=0.1, row_s=0.03, token_s=0.025)
    assert chosen([(0, 8)], 8, prices, proven()) == (set(), 0)
    slots, _ = chosen([(slot, 8) for slot in range(8)], 8, prices, proven())
    assert slots == set(range(8))


@quick
@given(
    st.lists(st.integers(3, 20), max_size=8),
    st.integers(0, 8),
    st.builds(Prices, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
    st.lists(st.tuples(st.integers(3, 20), st.booleans()), max_size=200),
)
def test_what_is_chosen_is_expected_to_pay(
    lengths: list[int], others: int, prices: Prices, seen: list[tuple[int, bool]]
) -> None:
    record = Record()
    for run, hit in seen:
        record.saw(run, hit)
    runs = list(enumerate(lengths))
    decoding = len(runs) + others
    slots, length = chosen(runs, decoding, prices, record)
    assert bool(slots) == (length > 0)
    if slots:
        gained = sum(record.expected(run, length) for slot, run in runs if slot in slots)
        saved_s = gained * (prices.row_s + prices.pass_s / decoding)
        cost_s = len(slots) * ((length + 1) * prices.token_s - prices.row_s)
        assert length in LENGTHS
        assert saved_s > cost_s + (prices.pass_s if len(slots) < decoding else 0)


# -- what was said of a proposal


def test_a_proposal_matches_as_far_as_it_was_said() -> None:
    assert matching([1, 2, 3], [1, 2, 3]) == 3
    assert matching([1, 2, 3], [1, 2, 4, 3]) == 2
    assert matching([1, 2, 3], [1, 2]) == 2
    assert matching([1], [1, 2, 3]) == 1
    assert matching([], [1]) == matching([1], []) == matching([2, 1], [1, 2]) == 0


@quick
@given(tokens, tokens)
def test_what_matches_is_the_longest_common_beginning(proposal: list[int], said: list[int]) -> None:
    count = matching(proposal, said)
    assert proposal[:count] == said[:count]
    assert count in (len(proposal), len(said)) or proposal[count] != said[count]
