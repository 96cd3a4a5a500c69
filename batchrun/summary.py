"""What a run came to, in numbers and in a few lines for a person."""

from collections import Counter
from dataclasses import dataclass, field

from batchrun.conditions import Conditions
from batchrun.core import GROUP_WON, Result, Status
from batchrun.verdicts import Audit
from batchrun.verdicts import lines as audit_lines

REASONS_SHOWN = 5


@dataclass(slots=True)
class Summary:
    """Counts over a run.  `earlier`: jobs whose result was there before it, by status."""

    statuses: Counter[str] = field(default_factory=Counter)
    earlier: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    bursts: int = 0
    blank_lines: int = 0
    wall_s: float = 0.0
    rest_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    forced_tokens: int = 0
    closed: int = 0  # answers that were led to an end inside their budget
    tried_again: int = 0
    cut_off: int = 0  # rows that the end of the run found unfinished; they run again
    interrupted: bool = False
    too_many_failures: bool = False
    spared: int = 0  # results of jobs that did not have to run: their group has its answer
    slowed: Counter[str] = field(default_factory=Counter)  # bursts, by what slowed the machine
    audit: Audit | None = None  # where a share was run again alone
    gave_up: str = ""  # why the run ended by itself with work left

    @property
    def failed(self) -> int:
        """Results of this run that are not as they should be."""
        return self.statuses.total() - self.statuses[Status.OK] - self.spared

    @property
    def jobs(self) -> int:
        return self.statuses.total() + self.earlier.total()

    @property
    def all_ok(self) -> bool:
        return not self.failed and not self.earlier_not_ok and not (self.audit and self.audit.different)

    @property
    def earlier_not_ok(self) -> int:
        """Of results that were there: a cancelled one is final only where its group has an answer."""
        return self.earlier.total() - self.earlier[Status.OK] - self.earlier[Status.CANCELLED]

    def add_burst(self, conditions: Conditions) -> None:
        self.bursts += 1
        cause = conditions.speed["cause"] or ("heat" if conditions.heat["fired"] else None)
        if cause:
            self.slowed[cause] += 1

    def add_result(self, result: Result) -> None:
        self.statuses[result.status] += 1
        spared = any(problem.code == GROUP_WON for problem in result.errors)
        self.spared += spared
        if result.errors and not spared:
            self.reasons[f"{result.status}: {result.errors[0].code}"] += 1
        self.closed += result.closed_by_budget
        self.prompt_tokens += result.usage.prompt_tokens
        self.cached_tokens += result.usage.cached_tokens
        self.completion_tokens += result.usage.completion_tokens
        self.forced_tokens += result.usage.forced_tokens


def lines(summary: Summary, where: str) -> list[str]:
    """The summary as a person reads it.  `where`: the results' place."""
    nothing = "nothing finished" if summary.interrupted else "nothing to do"
    counts = ", ".join(f"{count} {status}" for status, count in summary.statuses.most_common()) or nothing
    skipped = f"; {summary.earlier.total()} done before" if summary.earlier else ""
    said = [f"{counts}{skipped} -> {where}"]
    if summary.statuses.total() and summary.completion_tokens:
        minutes = max(summary.wall_s, 1e-9) / 60
        rest = f", {summary.rest_s:.0f} s of it rest" if summary.rest_s else ""
        said.append(
            f"{summary.wall_s:.1f} s in {summary.bursts} {_plural('burst', summary.bursts)}{rest}: "
            f"{summary.statuses[Status.OK] / minutes:.0f} validated results/min, "
            f"{summary.completion_tokens / (60 * minutes):.0f} tokens/s, "
            f"{summary.cached_tokens} of {summary.prompt_tokens} prompt tokens from shared prefixes, "
            f"{summary.forced_tokens} of {summary.completion_tokens} answer tokens forced"
        )
    if summary.closed:
        said.append(
            f"{summary.closed} {_plural('answer', summary.closed)} closed inside the budget: see closed_by_budget"
        )
    if summary.cut_off:
        rows = "1 row that ran was" if summary.cut_off == 1 else f"{summary.cut_off} rows that ran were"
        said.append(f"{rows} cut off")
    if summary.tried_again:
        said.append(f"{summary.tried_again} further {'try' if summary.tried_again == 1 else 'tries'}")
    if summary.slowed:
        slowed = ", ".join(f"{cause} in {count}" for cause, count in summary.slowed.most_common())
        said.append(f"slowed by {slowed} of {summary.bursts} {_plural('burst', summary.bursts)}")
    said += [f"{count} {reason}" for reason, count in summary.reasons.most_common(REASONS_SHOWN)]
    if len(summary.reasons) > REASONS_SHOWN:
        others = sum(count for _, count in summary.reasons.most_common()[REASONS_SHOWN:])
        said.append(f"{others} for other reasons: see errors in the results, or batchrun report")
    if summary.earlier_not_ok:
        said.append(f"{summary.earlier_not_ok} of those done before are not ok")
    if summary.audit and (summary.audit.counts or summary.audit.passed_over):
        said += audit_lines(summary.audit)
    if summary.blank_lines:
        said.append(f"{summary.blank_lines} blank {_plural('line', summary.blank_lines)} skipped")
    return said


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"
