"""Documents that fit into no slot: refused, cut, or read in pieces, and always with a word about it."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from shell import Ran, read, statuses, write_jobs
from shell import here as batchrun

from batchrun.cutting import GAP, Span, joined, place_in_whole

TEXT = "\n\n".join(f"Paragraph {number}. " + "Some words stand here. " * 15 for number in range(40))
CARD = {
    "type": "object",
    "properties": {
        "names": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
        "kind": {"enum": ["x", "y"]},
    },
    "required": ["names", "kind"],
    "additionalProperties": False,
}
JOB = {"id": "doc", "prompt": "Count.", "document": TEXT, "schema": CARD, "max_tokens": 200, "meta": {"page": 1}}
SHORT = {"id": "short", "prompt": "Count.", "document": "One line.", "schema": CARD, "max_tokens": 200}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jobs(tmp_path / "jobs.jsonl", [JOB, SHORT])
    return tmp_path


def run(folder: Path, *arguments: str) -> Ran:
    return batchrun(folder, "run", "jobs.jsonl", "--context", "4096", *arguments)


def results(folder: Path) -> dict[str, dict[str, Any]]:
    lines = read(folder / "jobs.results.jsonl")
    assert statuses(lines).keys() == {"doc", "short"}
    return {record["id"]: record for record in lines}


def test_a_document_that_is_too_long_is_rejected_by_default(folder: Path) -> None:
    assert run(folder).status == 3
    found = results(folder)
    assert (found["doc"]["errors"][0]["code"], found["short"]["status"]) == ("too_long", "ok")


@pytest.mark.parametrize("policy", ["truncate-middle", "truncate-end"])
def test_what_was_cut_stands_in_the_result(folder: Path, policy: str) -> None:
    assert run(folder, "--on-overflow", policy).status == 0
    found = results(folder)
    document = found["doc"]["document"]
    assert (document["characters"], document["cut"]) == (len(TEXT), policy)
    kept = sum(end - start for start, end in document["pieces"])
    assert 2800 < kept < 4096
    assert found["doc"]["usage"]["prompt_tokens"] <= 4096 - 200
    assert document["pieces"][0][0] == 0
    assert (document["pieces"][-1][1] == len(TEXT)) == (policy == "truncate-middle")
    assert "document" not in found["short"]
    assert "nothing to do; 2 done before" in run(folder, "--on-overflow", policy).err
    other = "truncate-end" if policy == "truncate-middle" else "truncate-middle"
    assert "1 ok; 1 done before" in run(folder, "--on-overflow", other).err, "it is another answer"


def test_a_prompt_without_a_document_is_cut_too_but_has_no_pieces(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [{"id": "doc", "prompt": TEXT, "max_tokens": 400}, SHORT])
    assert run(tmp_path, "--on-overflow", "truncate-end").status == 0
    assert run(tmp_path, "--on-overflow", "chunk", "-o", "other.jsonl").status == 3
    rejected = next(record for record in read(tmp_path / "other.jsonl") if record["id"] == "doc")
    assert "only a document can be read in pieces" in rejected["errors"][0]["message"]


def test_a_document_is_read_in_pieces_and_merged_by_its_schema(folder: Path) -> None:
    assert run(folder, "--on-overflow", "chunk").status == 0
    found = results(folder)["doc"]
    pieces = read(folder / "jobs.results.pieces.jsonl")
    spans = found["document"]["pieces"]
    assert found["document"] == {"characters": len(TEXT), "cut": "chunk", "pieces": spans}
    assert len(pieces) == len(spans) > 3
    assert (spans[0][0], spans[-1][1]) == (0, len(TEXT))
    assert all(before[0] < after[0] <= before[1] for before, after in itertools.pairwise(spans))
    answers = [piece["output"] for piece in sorted(pieces, key=lambda piece: piece["id"])]
    assert sorted(found["output"]["names"]) == sorted({name for answer in answers for name in answer["names"]})
    kinds = [answer["kind"] for answer in answers]
    assert kinds.count(found["output"]["kind"]) >= len(kinds) / 2
    assert found["usage"]["completion_tokens"] == sum(piece["usage"]["completion_tokens"] for piece in pieces)
    assert found["meta"] == {"page": 1}
    assert "nothing to do; 2 done before" in run(folder, "--on-overflow", "chunk").err


def test_a_changed_document_runs_only_the_pieces_that_changed(folder: Path) -> None:
    run(folder, "--on-overflow", "chunk")
    before = read(folder / "jobs.results.pieces.jsonl")
    write_jobs(folder / "jobs.jsonl", [JOB | {"document": TEXT + "One more sentence."}, SHORT])
    assert run(folder, "--on-overflow", "chunk").status == 0
    after = read(folder / "jobs.results.pieces.jsonl")
    assert len([piece for piece in after if piece not in before]) == 1


def test_a_reduce_prompt_makes_the_single_values_and_leaves_the_lists(folder: Path) -> None:
    run(folder, "--on-overflow", "chunk")
    merged = results(folder)["doc"]["output"]
    assert run(folder, "--on-overflow", "chunk", "--reduce-prompt", "Which kind is it after all?").status == 0
    found = results(folder)["doc"]["output"]
    assert found["names"] == merged["names"]
    reduced = [piece for piece in read(folder / "jobs.results.pieces.jsonl") if "#all-" in piece["id"]]
    assert reduced[-1]["output"]["kind"] == found["kind"]


def test_many_answers_are_reduced_in_rounds(tmp_path: Path) -> None:
    job = {"id": "doc", "prompt": "Say something.", "document": TEXT, "max_tokens": 300}
    write_jobs(tmp_path / "jobs.jsonl", [job, SHORT | {"schema": None}])
    arguments = ("--context", "900", "--on-overflow", "chunk", "--reduce-prompt", "Sum it up.")
    assert batchrun(tmp_path, "run", "jobs.jsonl", *arguments).status == 0
    pieces = read(tmp_path / "jobs.results.pieces.jsonl")
    rounds = [piece for piece in pieces if "#all-" in piece["id"]]
    assert len(rounds) > 2
    assert results(tmp_path)["doc"]["output"] == rounds[-1]["output"]


def test_free_answers_to_pieces_stand_one_after_another(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [JOB | {"schema": None, "max_tokens": 400}, SHORT])
    assert run(tmp_path, "--on-overflow", "chunk").status == 0
    pieces = {piece["id"]: piece["output"] for piece in read(tmp_path / "jobs.results.pieces.jsonl")}
    wanted = "\n\n".join(pieces[f"doc#{number}"] for number in range(1, len(pieces) + 1))
    assert results(tmp_path)["doc"]["output"] == wanted


def test_a_piece_that_fails_is_told_with_its_place(folder: Path) -> None:
    write_jobs(folder / "jobs.jsonl", [JOB | {"max_tokens": 24}, SHORT])
    assert run(folder, "--on-overflow", "chunk", "--on-budget", "fail").status == 3
    found = results(folder)["doc"]
    assert found["status"] == "truncated"
    assert found["errors"][0]["message"].startswith("piece ")
    assert ", characters " in found["errors"][0]["message"]


def test_a_merged_answer_that_fits_its_schema_no_more_is_invalid(folder: Path) -> None:
    card = json.loads(json.dumps(CARD))
    card["properties"]["names"] |= {"minItems": 1, "maxItems": 1}
    write_jobs(folder / "jobs.jsonl", [JOB | {"schema": card}, SHORT])
    run(folder, "--on-overflow", "chunk")
    found = results(folder)["doc"]
    assert (found["status"], found["errors"][0]["path"]) == ("invalid", "/names")


def test_an_instruction_that_leaves_no_room_is_rejected(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [JOB | {"prompt": "x" * 5000}, SHORT])
    for policy in ("truncate-middle", "chunk"):
        run(tmp_path, "--on-overflow", policy)
        assert "even without its document" in results(tmp_path)["doc"]["errors"][0]["message"]


def test_check_counts_what_would_be_cut(folder: Path) -> None:
    said = batchrun(folder, "check", "jobs.jsonl", "--context", "4096", "--on-overflow", "chunk").out
    assert "2 jobs: 2 would run, 0 are done, 0 rejected" in said
    assert "too long for a slot, to be cut or read in pieces: 1" in said


QUOTE = {"type": "string", "x-verbatim": True, "minLength": 6, "maxLength": 12}


@pytest.mark.parametrize("policy", ["truncate-middle", "truncate-end", "chunk"])
def test_quotes_are_placed_in_the_document_that_was_cut(tmp_path: Path, policy: str) -> None:
    text = " ".join(f"word{number:04}" for number in range(1400))
    job = {"id": "doc", "prompt": "Quote.", "document": text, "max_tokens": 40}
    write_jobs(
        tmp_path / "jobs.jsonl", [job | {"schema": {"type": "array", "items": QUOTE, "minItems": 1, "maxItems": 20}}]
    )
    ran = batchrun(tmp_path, "run", "jobs.jsonl", "--context", "4096", "--on-overflow", policy)
    (found,) = read(tmp_path / "jobs.results.jsonl")
    assert (ran.status, found["status"]) == (0, "ok")
    assert len(found["verbatim"]) == len(found["output"]) > 0
    for quote in found["verbatim"]:
        said = found["output"][int(quote["path"][1:])]
        assert text[quote["start"] : quote["end"]] == said.strip() or text[quote["start"] : quote["end"]] == said


def test_what_was_closed_is_said_of_the_whole_and_of_copies(tmp_path: Path) -> None:
    job = {"prompt": "Count.", "document": TEXT, "schema": {"type": "string"}, "max_tokens": 8}
    write_jobs(tmp_path / "jobs.jsonl", [job | {"id": "doc"}])
    batchrun(tmp_path, "run", "jobs.jsonl", "--context", "4096", "--on-overflow", "chunk")
    (whole,) = read(tmp_path / "jobs.results.jsonl")
    pieces = read(tmp_path / "jobs.results.pieces.jsonl")
    assert whole["closed_by_budget"] == any(piece["closed_by_budget"] for piece in pieces)
    short = job | {"document": "One line."}
    write_jobs(tmp_path / "copies.jsonl", [short | {"id": "one"}])
    batchrun(tmp_path, "run", "copies.jsonl", "-o", "c.jsonl")
    write_jobs(tmp_path / "copies.jsonl", [short | {"id": "one"}, short | {"id": "two"}])
    batchrun(tmp_path, "run", "copies.jsonl", "-o", "c.jsonl")
    one, two = sorted(read(tmp_path / "c.jsonl"), key=lambda record: str(record["id"]))
    assert two["copy_of"] == "one"
    for name in ("output", "status", "closed_by_budget", "closed_by_runaway", "verbatim", "schema"):
        assert one[name] == two[name], name
    assert one["closed_by_budget"]


def test_pieces_that_failed_are_read_again_with_retry_failed(folder: Path) -> None:
    arguments = ("--on-overflow", "chunk", "--on-budget", "fail")
    write_jobs(folder / "jobs.jsonl", [JOB | {"max_tokens": 24}, SHORT])
    run(folder, *arguments)
    first = results(folder)["doc"]
    assert first["status"] == "truncated"
    run(folder, *arguments, "--retry-failed")
    again = results(folder)["doc"]
    assert again["usage"]["completion_tokens"] > 0, "pieces ran"


def test_equal_jobs_that_are_cut_are_computed_once(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [JOB | {"id": name} for name in ("one", "two")])
    batchrun(tmp_path, "run", "jobs.jsonl", "--context", "4096", "--on-overflow", "truncate-end")
    found = read(tmp_path / "jobs.results.jsonl")
    assert [record.get("copy_of") for record in sorted(found, key=lambda record: str(record["id"]))] == [None, "one"]
    assert found[0]["document"] == found[1]["document"]


def test_a_document_that_must_be_quoted_can_be_cut(tmp_path: Path) -> None:
    """What room a job takes is asked without its grammar, which an empty document would leave nothing to say."""
    text = " ".join(f"word{number:04}" for number in range(1400))
    job = {"id": "doc", "prompt": "Quote.", "document": text, "max_tokens": 40, "schema": QUOTE}
    write_jobs(tmp_path / "jobs.jsonl", [job])
    assert batchrun(tmp_path, "run", "jobs.jsonl", "--context", "4096", "--on-overflow", "truncate-end").status == 0


def test_a_quote_across_what_was_cut_out_is_none() -> None:
    spans = [Span(0, 4), Span(10, 14)]
    assert joined("abcd......wxyz", spans) == "abcd" + GAP + "wxyz"
    assert place_in_whole(spans, Span(1, 3)) == Span(1, 3)
    assert place_in_whole(spans, Span(4 + len(GAP), 6 + len(GAP))) == Span(10, 12)
    assert place_in_whole(spans, Span(3, 5)) is None
    assert place_in_whole(spans, Span(5, 7)) is None
    assert place_in_whole(spans, Span(2, 6 + len(GAP))) is None
