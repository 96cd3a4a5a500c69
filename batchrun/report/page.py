"""The report as one HTML file that opens offline: no request leaves it, and nothing in a result is markup to it.

Every text of a result goes through Jinja's escaping and stands isolated from the direction of the text around it; JSON
in the script has its `<` escaped; a policy in the page's head forbids every request.
"""

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from batchrun.errors import OutputError, UsageError
from batchrun.report.cards import cards, subtitle
from batchrun.report.figures import Reason, Report

NO_PLOTLY = "the HTML report needs plotly; run: pip install 'batchrun-llm[report]'"


@dataclass(frozen=True, slots=True)
class _Failures:
    """A reason with an anchor of its own."""

    anchor: int
    status: str
    code: str
    jobs: int
    rows: tuple[tuple[int, str, str], ...]


def write_page(found: Report, title: str, path: Path) -> int:
    """Writes the page and gives its size in bytes.  Raises UsageError without plotly, OutputError for the file."""
    try:
        from plotly.offline import get_plotlyjs

        from batchrun.report.charts import charts
    except ImportError as error:
        raise UsageError(NO_PLOTLY) from error
    environment = Environment(
        loader=PackageLoader("batchrun.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=False
    )
    environment.filters["script"] = _in_script
    text = environment.get_template("page.html").render(
        title=title,
        subtitle=subtitle(found),
        cards=cards(found),
        charts=charts(found),
        reasons=[_failures(place, reason) for place, reason in enumerate(found.reasons)],
        schemas=found.schemas,
        plotly=get_plotlyjs(),
    )
    data = text.encode("utf-8", errors="replace")  # half a surrogate pair has no bytes
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputError(f"{path} could not be written: {error.strerror}") from error
    return len(data)


def _in_script(figure: str) -> Markup:
    """JSON that cannot end the script it stands in."""
    return Markup(figure.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _failures(place: int, reason: Reason) -> _Failures:
    return _Failures(place, reason.status, reason.code, reason.jobs, reason.rows)
