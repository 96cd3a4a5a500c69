"""The guide over many real schemas, by hand: `SCHEMA_SAMPLE=sample.jsonl pytest -m slow -s`.  Figures are printed.

A line of the sample holds a `name`, a `schema`, and `tests`: instances (`data`).
"""

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from building import TOKENIZER, engine, limits
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from llguidance import LLMatcher, LLTokenizer
from spelling import spells

from batchrun.assembly import open_parts
from batchrun.backends.base import LoadPlan
from batchrun.backends.fake import VOCAB, FakeBackend
from batchrun.config import Settings
from batchrun.core import Completion, Job, Message, Request, Sampling, Schema, Status
from batchrun.cost import Cost
from batchrun.engine import Engine as Loop
from batchrun.errors import JobError
from batchrun.guide import CompiledSchema, Engine, Guide
from batchrun.results import judge
from batchrun.schema_folders import SchemaFolders
from batchrun.width import Width

SAMPLE = os.environ.get("SCHEMA_SAMPLE", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SAMPLE, reason="SCHEMA_SAMPLE names no sample")]

FREE_TOKENS = 40
REAL_JOBS = 200
ASKED = (Message("user", "Make up an example of such a record."),)


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(SAMPLE).read_text().splitlines()]


def plain_validator(content: Any) -> Any:
    """The library's own, which knows nothing of us.  It fetches nothing either."""
    cls = validator_for(content, default=jsonschema.Draft202012Validator)
    return cls(content, registry=REGISTRY, format_checker=cls.FORMAT_CHECKER)


def loaded(content: Any, folders: SchemaFolders) -> Schema:
    return folders.load(content)


@pytest.fixture
def deep() -> Iterator[None]:
    """Room for the speller, which calls itself at every piece."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("deep")
def test_every_usable_schema_compiles_and_no_valid_instance_is_lost() -> None:
    ours, folders, bytewise = Engine(TOKENIZER.for_guide()), SchemaFolders([], []), LLTokenizer("byte")
    seconds, compiled, alone, refused = [], 0, 0, Counter[tuple[bool, bool]]()
    for row in rows():
        began_s = time.process_time()
        grammar = CompiledSchema(ours, loaded(row["schema"], folders))
        seconds.append(time.process_time() - began_s)
        compiled += grammar.least_tokens > 0
        library = LLMatcher(bytewise, LLMatcher.grammar_from_json_schema(row["schema"]), log_level=0)
        alone += not library.is_error()
        validator = plain_validator(row["schema"])
        stand = grammar.stand()
        stand.matcher.rollback(len(stand.said))
        for instance in [test["data"] for test in row["tests"] if validator.is_valid(test["data"])]:
            by_library = not library.is_error() and spells(library, instance)
            refused[spells(stand.matcher, instance), by_library] += 1
    seconds.sort()
    print(f"\n{compiled} of {len(seconds)} schemas compile with a way to an end; the library alone compiles {alone}")
    print("valid instances, by (admitted by the guide, admitted by the library alone):", dict(refused))
    p50_s, p99_s = seconds[len(seconds) // 2], seconds[-len(seconds) // 100]
    print(f"load and compile: p50 {1e3 * p50_s:.1f} ms, p99 {1e3 * p99_s:.1f} ms")
    assert compiled == len(seconds)
    assert not refused[False, True]


def judged(completions: list[Completion], counts: Counter[str]) -> None:
    """Counts results; fails where one is `ok` that the library rejects."""
    for completion in completions:
        result, schema = judge(completion, "model", 1), completion.request.job.schema
        kind = "guided" if schema else "free"
        counts[f"{kind} {result.status.value}"] += 1
        counts["closed by budget"] += result.closed_by_budget
        counts["closed as runaway"] += result.closed_by_runaway
        if schema and result.status is Status.OK:
            assert plain_validator(schema.content).is_valid(result.output), (schema.content, result.output)
        if schema:
            counts["parse"] += _parses(completion.text)
            if result.status is not Status.OK:
                print(f"  {result.status.value}: {result.errors[0].message[:150]} in {completion.text[-60:]!r}")


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_a_model_that_wants_to_say_anything_never_makes_a_wrong_answer_ok() -> None:
    source, folders, guide = random.Random(7), SchemaFolders([], []), Guide(TOKENIZER.for_guide(), VOCAB, 2)
    requests, counts = [], Counter[str]()
    sample = rows()
    for number in range(2000):
        schema = loaded(sample[number % len(sample)]["schema"], folders)
        grammar = guide.compile(schema)
        least = grammar.least_tokens
        budget = source.choice([least, least + 1, least + 5, least + 40, 2 * least + 20, max(least, 300)])
        job = Job(number, f"{number}", (), None, schema, budget, Sampling(), (), None)
        requests.append(Request(job, "", tuple(f"p{number}".encode()), grammar))
        if number % 4 == 0:
            free = Job(number, f"free {number}", (), None, None, FREE_TOKENS, Sampling(), (), None)
            requests.append(Request(free, "", tuple(f"q{number}".encode())))
    running = engine(FakeBackend(limits(36, 20_000, batch=512)), rows=32, guide=guide)
    running.submit(requests)
    while not running.idle:
        judged(running.step(), counts)
    print("\n", dict(sorted(counts.items())))
    assert counts["guided ok"] + counts["guided invalid"] == counts["parse"] == 2000
    assert counts["free ok"] + counts["free truncated"] == 500


@pytest.mark.parametrize("on_budget", ["close", "fail"])
@pytest.mark.parametrize("budget", [16, 32, 64, 128])
def test_real_answers_are_never_cut(budget: int, on_budget: str) -> None:
    """The schema is not in the prompt: the guide alone is what is tried."""
    parts = open_parts(Settings(on_budget=on_budget, schema_in_prompt="off"))
    always = parts.guide if on_budget == "close" else open_parts(Settings(schema_in_prompt="off")).guide
    folders, requests, counts = SchemaFolders([], []), [], Counter[str]()
    sample = rows()
    random.Random(11).shuffle(sample)
    for number, row in enumerate(sample):
        schema = loaded(row["schema"], folders)
        if always.compile(schema).least_tokens > budget:
            counts["refused: budget too small"] += 1
            continue
        try:
            job = Job(number, row["name"], ASKED, None, schema, budget, Sampling(), (), None)
            requests.append(parts.preparer.prepare(job, "", 0.0))
        except JobError as error:
            counts[f"refused: {error.problem.code}"] += 1
        if len(requests) == REAL_JOBS:
            break
    backend = parts.model.load(LoadPlan(8, 10, 512, 512, 2), lambda: False)
    width = Width(8, 8, fixed=True)
    running = Loop(backend, parts.model.tokenizer, parts.guide, Cost(), time.monotonic, width=width)
    began_s = time.monotonic()
    running.submit(requests)
    while not running.idle:
        judged(running.step(), counts)
    wall_s, meter = time.monotonic() - began_s, running.take_meter()
    backend.close()
    share = (meter.masks_s + meter.guide_s) / wall_s
    print(f"\n{on_budget} at {budget}: {len(requests)} jobs: {dict(sorted(counts.items()))}")
    print(f"{wall_s:.1f} s, of it masks {meter.masks_s:.2f} s and guide {meter.guide_s:.2f} s: {100 * share:.2f} %")
    if on_budget == "close":
        assert counts["parse"] == len(requests)
        assert counts["guided ok"] >= 0.99 * len(requests)
        assert counts["guided ok"] + counts["guided invalid"] == len(requests)
