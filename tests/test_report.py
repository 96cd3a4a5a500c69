"""What a report says equals what its files hold, and nothing in a result is more than text to it."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from batchrun.core import Status
from batchrun.errors import InputError, OutputError, UsageError
from batchrun.report.cards import subtitle
from batchrun.report.command import show
from batchrun.report.comparison import compare
from batchrun.report.figures import Report, report
from batchrun.report.lanes import timeline
from batchrun.report.lines import ResultLines, bursts
from batchrun.report.page import write_page

FIELDS = some.dictionaries(
    some.sampled_from(["name", "age", "tags"]), some.sampled_from([None, "", "Ann", 7, [], ["a"]])
)
SECONDS = some.floats(0, 100).map(lambda value: round(value, 4))


@some.composite
def lines(draw: some.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "id": f"job-{place}",
            "index": place + 1,
            "status": (status := draw(some.sampled_from(Status)).value),
            "output": draw(FIELDS) if status == "ok" else "no",
            "errors": []
            if status == "ok"
            else [{"code": draw(some.sampled_from(["schema", "not_json"])), "message": "m"}],
            "usage": {"prompt_tokens": draw(some.integers(0, 999)), "forced_tokens": draw(some.integers(0, 9))},
            "timing": draw(
                some.none() | some.fixed_dictionaries({"ttft_s": some.none() | SECONDS, "total_s": SECONDS})
            ),
            "attempt": draw(some.integers(0, 3)),
            "model": "m",
            "digest": "d",
        }
        for place in range(draw(some.integers(0, 30)))
    ]


def line(job_id: str, **fields: Any) -> dict[str, Any]:
    return {"id": job_id, "index": 1, "status": "ok", "output": {}, "errors": [], "digest": "d", "model": "m"} | fields


def written(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@given(lines())
def test_the_figures_are_what_an_independent_count_gives(records: list[dict[str, Any]]) -> None:
    found = report(records, ())
    assert found.results == len(records)
    assert found.statuses == Counter(record["status"] for record in records)
    wrong = Counter((r["status"], r["errors"][0]["code"]) for r in records if r["status"] != "ok")
    assert {(reason.status, reason.code): reason.jobs for reason in found.reasons} == wrong
    assert found.tokens.get("prompt_tokens", 0) == sum(record["usage"]["prompt_tokens"] for record in records)
    assert found.retried == sum(record["attempt"] > 1 for record in records)
    ttft = sorted(r["timing"]["ttft_s"] for r in records if r["timing"] and r["timing"]["ttft_s"] is not None)
    assert found.ttft.p50 == (ttft[-(-len(ttft) // 2) - 1] if ttft else None)
    answers = [record["output"] for record in records if record["status"] == "ok" and record["output"]]
    answered = {name for answer in answers for name in answer}
    fields = {field.name: field for schema in found.schemas for field in schema.fields}
    assert fields.keys() - {"(answer)"} == answered
    for name, field in fields.items():
        values = [answer[name] for answer in answers if name in answer]
        assert field.filled == sum(value not in (None, "", []) for value in values)
        flat = Counter(str(v) for value in values for v in (value if isinstance(value, list) else [value]) if v)
        assert dict(field.values) == dict(flat)


def test_a_file_that_still_grows_or_was_damaged_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", [line("a"), line("b")])
    path.write_bytes(path.read_bytes() + b'no json\n{"id":"c","sta')
    results = ResultLines(path)
    assert [record["id"] for record in results] == ["a", "b"]
    assert results.damaged == 2
    assert bursts(tmp_path / "none.stats.jsonl") == ()


def test_a_missing_file_and_a_full_folder_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a results file"):
        list(ResultLines(tmp_path / "none.jsonl"))
    with pytest.raises(OutputError, match=r"page\.html could not be written"):
        write_page(report([], ()), "r", tmp_path / "no folder" / "page.html")
    with pytest.raises(UsageError, match="two to compare"):
        show([tmp_path] * 3, None, None, as_json=False)


HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}",
    "\u202egnp.exe",
    "\ud800",
]


def test_hostile_results_are_text_on_the_page(tmp_path: Path) -> None:
    timing = {"queued_s": 0.1, "ttft_s": 0.2, "total_s": 1.0}
    good = [
        line(text, output={text: text}, timing=timing, ended_at="2026-11-30T02:00:00+00:00", schema=text, model=text)
        for text in [*HOSTILE, "x" * 1_000_000]
    ]
    bad = [line(text, status="invalid", errors=[{"code": text, "message": text}]) for text in HOSTILE]
    found = report(good + bad, ({"burst": 1, "started_at": "2026-11-30T01:59:59+00:00", "seconds": {"wall": 2.0}},))
    size_bytes = write_page(found, "<b>results</b>", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_bytes().decode()
    body = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert page.count("<script>") == 2, "the library and the figures"
    assert "<img" not in body
    assert "<b>" not in body
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in body
    assert "{{ 7 * 7 }}" in body
    assert size_bytes < 7_000_000
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", body)


def test_a_terminal_is_shown_no_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\x1b[31mred\x07"
    records = [line("a", output={text: text}), line(text, status="invalid", errors=[{"code": text, "message": text}])]
    show([written(tmp_path / "r.jsonl", records)], None, None, as_json=False)
    show([tmp_path / "r.jsonl", written(tmp_path / "s.jsonl", [line(text)])], None, None, as_json=False)
    shown = capsys.readouterr().out
    assert "\x1b[31m" not in shown
    assert "\x07" not in shown
    assert "\\x1b[31mred" in shown


def test_two_runs_are_compared_row_by_row() -> None:
    before = [
        line("same", digest="1-2-3-4-5"),
        line("prompt", digest="1-2-3-4-5", output={"a": 1}),
        line("tie", digest="1-2-3-4-5", output={"a": 1}),
        line("gone"),
    ]
    after = [
        line("same", digest="1-2-3-4-5"),
        line("prompt", digest="x-2-3-4-y", output={"a": 2}),
        line("tie", digest="1-2-3-4-5", output={"a": 2}),
        line("new"),
        line("new too"),
    ]
    found = compare(before, after)
    assert (found.same, found.changed, found.only_before, found.only_after) == (1, 2, 1, 2)
    assert {row.id: row.why for row in found.rows} == {"prompt": ("prompt", "settings"), "tie": ("the same job",)}


def _timed(job: str, slot: int | None, ended: int, total_s: float) -> dict[str, Any]:
    timing = {"queued_s": 0.0, "ttft_s": 0.5, "total_s": total_s, "forced_s": 0.25}
    return line(job, slot=slot, ended_at=f"2026-11-30T02:00:{ended:02}+00:00", timing=timing)


def lanes_of(found: Report) -> dict[str, str]:
    return {bar.job: bar.lane for bar in timeline(found.jobs, found.bursts).bars}


def test_of_several_machines_each_slot_of_each_has_a_lane() -> None:
    jobs = [_timed("a", 0, 10, 5.0) | {"burst": 1}, _timed("b", 0, 10, 5.0) | {"burst": 2}]
    seconds = {"wall": 10.0, "rest": 0.0}
    stats = tuple({"burst": number, "node": f"node-{number}", "seconds": seconds} for number in (1, 2))
    assert lanes_of(report(jobs, stats)) == {"a": "node-1 0", "b": "node-2 0"}


def test_one_of_a_thing_is_said_as_one() -> None:
    burst = {"burst": 1, "seconds": {"wall": 10.0, "rest": 0.0}}
    assert subtitle(report([line("a")], (burst,))) == "1 result from m in 1 burst"
    assert subtitle(report([line("a"), line("b")], (burst, burst))) == "2 results from m in 2 bursts"


def test_jobs_lie_on_the_lane_of_their_slot_and_side_by_side_where_it_is_not_known() -> None:
    known = [_timed("a", 3, 10, 5.0), _timed("b", 3, 20, 5.0), _timed("c", 0, 20, 9.0)]
    assert lanes_of(report(known, ())) == {"a": "3", "b": "3", "c": "0"}
    unknown = [_timed("a", None, 10, 5.0), _timed("b", None, 12, 5.0), _timed("c", None, 20, 5.0)]
    assert lanes_of(report(unknown, ())) == {"a": "0", "b": "1", "c": "0"}
    bars = timeline(report(known[:1], ()).jobs, ()).bars
    assert [(bar.phase, bar.start_s, bar.seconds) for bar in bars] == [
        ("prefill", 0.0, 0.5),
        ("decode", 0.5, 4.25),
        ("forced", 4.75, 0.25),
    ]


def test_the_command_prints_json_that_scripts_can_read(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", [line("a", output={"name": "Ann"})])
    command = [sys.executable, "-m", "batchrun", "report", str(path), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["schemas"][0]["fields"][0]["values"] == [["Ann", 1]]
    assert run.stderr == ""


def test_a_report_takes_nobody_s_place(tmp_path: Path) -> None:
    results, other = written(tmp_path / "r.jsonl", [line("a")]), tmp_path / "jobs.jsonl"
    other.write_text("mine")
    for page in (results, other):
        before = page.read_bytes()
        with pytest.raises(UsageError, match="expected another name"):
            show([results], None, page, as_json=False)
        assert page.read_bytes() == before
    for _ in range(2):
        show([results], None, tmp_path / "page.html", as_json=False)
    with pytest.raises(InputError, match="holds no results"):
        show([other], None, None, as_json=False)
