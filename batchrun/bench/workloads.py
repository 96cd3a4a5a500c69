"""Benchmark workloads as job lines, generated from a seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from batchrun.bench.texts import prose, sentence
from batchrun.errors import UsageError

Record = dict[str, Any]

FINDINGS = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 20, "maxLength": 60},
        "summary": {"type": "string", "minLength": 200, "maxLength": 260},
        "people": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 2, "maxItems": 3},
        "risk": {"enum": ["low", "medium", "high"]},
    },
    "required": ["title", "summary", "people", "risk"],
    "additionalProperties": False,
}
LABEL = {
    "type": "object",
    "properties": {"label": {"enum": ["repair", "delivery", "weather", "money", "people", "other"]}},
    "required": ["label"],
    "additionalProperties": False,
}
ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 200}},
    "required": ["answer"],
    "additionalProperties": False,
}
ROLES = ["key facts", "a plan", "risks", "the opposite view", "costs", "a timeline", "who is concerned", "a summary"]
QUESTIONS = [
    "Which machine had a fault?",
    "Who wrote to whom, and when?",
    "What did it cost?",
    "What is still open?",
]


def research(random: Random, jobs: int) -> list[Record]:
    """Distinct documents of about 1,000 tokens, one short shared system prompt, up to 128 tokens of JSON."""
    system = "You read reports from a regional cooperative and extract what matters. Be brief and exact."
    return [
        {
            "system": system,
            "prompt": "Extract the findings of this report.",
            "document": prose(random, 640),
            "schema": FINDINGS,
            "max_tokens": 128,
        }
        for _ in range(jobs)
    ]


def swarm(random: Random, jobs: int) -> list[Record]:
    """One document and question of about 1,000 tokens as the shared prefix, then one of eight roles."""
    document = prose(random, 640)
    return [
        {
            "prompt": f"{document}\n\nWhat should the cooperative do next?\n\nAnswer with {ROLES[place % 8]}.",
            "schema": ANSWER,
            "max_tokens": 128,
        }
        for place in range(jobs)
    ]


def classify(random: Random, jobs: int) -> list[Record]:
    """A shared instruction of about 800 tokens, short documents, one label each."""
    instruction = "Sort the message into one label. Examples of what the labels cover:\n\n" + prose(random, 480)
    return [
        {
            "prompt": instruction,
            "document": " ".join(sentence(random) for _ in range(4)),
            "schema": LABEL,
            "max_tokens": 16,
        }
        for _ in range(jobs)
    ]


def pairs(random: Random, jobs: int) -> list[Record]:
    """Every document with each of four questions, shuffled; the layout says which of the two leads."""
    documents = [prose(random, 290) for _ in range(max(1, jobs // len(QUESTIONS)))]
    records = [
        {"prompt": question, "document": document, "schema": ANSWER, "max_tokens": 64}
        for document in documents
        for question in QUESTIONS
    ]
    random.shuffle(records)
    return records[:jobs]


def plain(random: Random, jobs: int) -> list[Record]:
    """Short free-text jobs with nothing in common: what is left is batchrun's own cost."""
    return [{"prompt": sentence(random), "max_tokens": 256} for _ in range(jobs)]


def levers(random: Random, jobs: int) -> list[Record]:
    """Short prompts and answers of free text that use their whole budget: decoding, and little else."""
    return [{"prompt": sentence(random), "max_tokens": 48} for _ in range(jobs)]


@dataclass(frozen=True, slots=True)
class Workload:
    """Job lines, and the second at which each arrives.  `path`: the job file they are from, if they are from one."""

    name: str
    records: tuple[Record, ...]
    arrivals_s: tuple[float, ...]
    path: Path | None = None


MAKERS: Mapping[str, tuple[Callable[[Random, int], list[Record]], int]] = {
    "research": (research, 16),
    "swarm": (swarm, 8),
    "classify": (classify, 64),
    "pairs": (pairs, 48),
    "staggered": (research, 16),
    "levers": (levers, 16),
    "plain": (plain, 2000),
}
"""Name, maker, and how many jobs it has unless told otherwise."""

MEAN_GAP_S = 3.0  # between two arrivals of `staggered`, exponentially distributed: a Poisson process


def build(name: str, seed: int, jobs: int | None) -> Workload:
    """A workload.  Raises UsageError for a name that is not known."""
    if name not in MAKERS:
        raise UsageError(f"workload {name!r} is unknown; expected one of {', '.join(MAKERS)}")
    make, usual = MAKERS[name]
    random = Random(seed)
    records = make(random, jobs or usual)
    lines = tuple({"id": f"{name}-{place:04d}", **record} for place, record in enumerate(records))
    arrivals_s = [0.0]
    for _ in lines[1:]:
        arrivals_s.append(arrivals_s[-1] + (random.expovariate(1 / MEAN_GAP_S) if name == "staggered" else 0.0))
    return Workload(name, lines, tuple(arrivals_s))
