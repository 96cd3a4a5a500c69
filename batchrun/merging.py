"""Makes one answer of the answers to the pieces of a document.  Pure.

Lists are joined, and what stands in them twice stands once; of single values the one that most pieces gave wins, the
earlier of two equals; objects are merged key by key.  `null` has no vote where any piece knew more.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any


def merged(answers: Sequence[Any]) -> Any:
    """One value for many; None for none."""
    known = [answer for answer in answers if answer is not None]
    if not known:
        return None
    if all(isinstance(answer, dict) for answer in known):
        keys = dict.fromkeys(key for answer in known for key in answer)
        return {key: merged([answer[key] for answer in known if key in answer]) for key in keys}
    if all(isinstance(answer, list) for answer in known):
        return _unique([item for answer in known for item in answer])
    return _majority(known)


def with_scalars_of(answer: Any, reduced: Any) -> Any:
    """A merged answer whose single values are those of a reduced one; its lists stay, for they are whole."""
    if isinstance(answer, dict) and isinstance(reduced, dict):
        keys = dict.fromkeys([*answer, *reduced])
        return {key: with_scalars_of(answer[key], reduced.get(key)) if key in answer else reduced[key] for key in keys}
    return answer if isinstance(answer, list) else reduced


def _unique(items: list[Any]) -> list[Any]:
    return list(_by_text(items).values())


def _majority(values: list[Any]) -> Any:
    counts = Counter(map(_canonical, values))
    return _by_text(values)[max(counts, key=lambda text: counts[text])]  # of equals the one that came first


def _by_text(values: list[Any]) -> dict[str, Any]:
    """Each value once, where it stood first."""
    found: dict[str, Any] = {}
    for value in values:
        found.setdefault(_canonical(value), value)
    return found


def _canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
