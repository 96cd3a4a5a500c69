"""The headline figures of a report, as a person reads them: the same on the terminal and on the page."""

from batchrun.core import Status
from batchrun.report.figures import Report

GOOD, BAD, PLAIN = "good", "bad", ""
Card = tuple[str, str, str]  # name, value, and whether that is good or bad


def subtitle(found: Report) -> str:
    """One line that says what the figures are of."""
    models = ", ".join(found.models)
    damaged = f"; {found.damaged:,} lines are no results" if found.damaged else ""
    counts = (
        f"{_counted(found.results, 'result')} from {models or 'no model'} in {_counted(len(found.bursts), 'burst')}"
    )
    return counts + damaged


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def cards(found: Report) -> list[Card]:
    """Jobs by status first, then speed, then tokens."""
    tokens, seconds = found.tokens, found.seconds
    prompt = tokens.get("prompt_tokens", 0)
    cached, forced = tokens.get("cached_tokens", 0), tokens.get("forced_tokens", 0)
    said = tokens.get("completion_tokens", 0)
    cards = [
        (status, f"{count:,}", GOOD if status == Status.OK.value else BAD) for status, count in found.statuses.items()
    ]
    if found.validated_per_min is not None:
        cards.append(("validated results/min", f"{found.validated_per_min:,.1f}", PLAIN))
    if seconds:
        cards += [("seconds of work", f"{seconds.get('wall', 0):,.1f}", PLAIN)]
        cards += [("seconds of rest", f"{seconds.get('rest', 0):,.1f}", PLAIN)]
    cards += [
        ("prompt tokens", f"{prompt:,}", PLAIN),
        ("saved by shared prefixes", _of(cached, prompt), PLAIN),
        ("answer tokens", f"{said:,}", PLAIN),
        ("saved by forcing", _of(forced, said), PLAIN),
        ("run more than once", f"{found.retried:,}", PLAIN),
        ("closed by budget", f"{found.closed_by_budget:,}", PLAIN),
    ]
    return cards


def _of(part: int, whole: int) -> str:
    return f"{part:,} ({100 * part / whole:.0f} %)" if whole else "0"
