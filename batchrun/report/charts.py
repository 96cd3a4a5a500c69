"""The charts of a report page, as Plotly figures in JSON; the page draws them and fits their colours to its theme."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from batchrun.report.figures import Report, Spread
from batchrun.report.lanes import DECODE, FORCED, PREFILL, Timeline, timeline
from batchrun.report.lines import Record, moment

COLOURS = {PREFILL: "#4c78a8", DECODE: "#54a24b", FORCED: "#e6a817"}  # told apart in both themes, and by eyes that
REST = "rgba(128,128,128,0.25)"  # do not see red and green
GRID = "rgba(128,128,128,0.25)"
HISTOGRAM_VALUES = 20_000  # more make the page large and the picture no better
BORDERS_DRAWN = 24
LANE_PX = 22
MARKED_POINTS = 200


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure with its heading, a sentence that says what it shows, and its height."""

    key: str
    title: str
    says: str
    height_px: int
    figure: str  # JSON


def charts(found: Report) -> tuple[Chart, ...]:
    """All charts that the files have something for."""
    drawn = timeline(found.jobs, found.bursts)
    dated = [burst for burst in found.bursts if moment(burst.get("started_at")) is not None]
    made = [
        _timeline(drawn, len(found.jobs), len(found.total.values)) if drawn.bars else None,
        _throughput(dated) if dated else None,
        _heat(dated) if any(_heat_of(burst) is not None or _speed_of(burst) is not None for burst in dated) else None,
        _latency(found.ttft, found.total) if found.total.values else None,
    ]
    return tuple(chart for chart in made if chart)


def _timeline(drawn: Timeline, jobs: int, of: int) -> Chart:
    bars = [
        go.Bar(
            name=phase,
            orientation="h",
            base=[round(bar.start_s, 3) for bar in mine],
            x=[round(max(bar.seconds, 0.0), 3) for bar in mine],
            y=[bar.lane for bar in mine],
            hovertext=[_plain(bar.job) for bar in mine],
            hovertemplate="%{hovertext}<br>" + phase + " %{x:.2f} s<extra></extra>",
            marker={"color": colour, "line": {"width": 0}},
        )
        for phase, colour in COLOURS.items()
        if (mine := [bar for bar in drawn.bars if bar.phase == phase])
    ]
    figure = _figure(bars, "seconds since the start", "slot")
    figure.update_layout(barmode="overlay", bargap=0.25)
    lanes = list(reversed(drawn.lanes))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=lanes, automargin=True)
    every = max(1, -(-len(drawn.borders) // BORDERS_DRAWN))
    for at, number in drawn.borders[::every]:
        figure.add_vline(x=round(at, 3), line={"width": 1, "dash": "dot", "color": "rgba(128,128,128,0.8)"})
        figure.add_annotation(x=round(at, 3), y=1, yref="paper", yanchor="bottom", text=str(number), showarrow=False)
    for start_s, rest_s in drawn.rests:
        figure.add_vrect(x0=round(start_s, 3), x1=round(start_s + rest_s, 3), fillcolor=REST, line_width=0)
    share = "every job" if jobs == of else f"the last {jobs:,} of {of:,} jobs"
    says = f"A lane for each slot, a bar for each job ({share}); dotted lines are borders of bursts, grey is rest."
    return Chart("timeline", "Slots", says, 120 + LANE_PX * len(drawn.lanes), str(figure.to_json()))


def _throughput(bursts: Sequence[Record]) -> Chart:
    nodes = _by_node(bursts)
    lines = [
        go.Scatter(name=node or "validated results/min", x=_when(own), y=[b.get("validated_per_min") for b in own])
        for node, own in nodes
    ]
    if len(nodes) == 1:  # of several, one line each is enough to look at
        ((_, own),) = nodes
        lines.append(go.Scatter(name="tokens/s", x=_when(own), y=[b.get("tokens_per_s") for b in own], yaxis="y2"))
    figure = _figure(lines, "start of the burst, UTC", "validated results/min")
    figure.update_traces(mode="lines+markers" if len(bursts) <= MARKED_POINTS else "lines")
    figure.update_layout(yaxis2={"title": "tokens/s", "overlaying": "y", "side": "right", "rangemode": "tozero"})
    figure.update_yaxes(rangemode="tozero")
    return Chart("throughput", "Throughput", "Each point is a burst.", 320, str(figure.to_json()))


def _heat(bursts: Sequence[Record]) -> Chart:
    lines = []
    for node, own in _by_node(bursts):
        heat, speed = [_heat_of(burst) for burst in own], [_speed_of(burst) for burst in own]
        lines.append(go.Scatter(name=f"hottest sensor, °C {node}".strip(), x=_when(own), y=heat))
        lines.append(go.Scatter(name=f"speed against cool {node}".strip(), x=_when(own), y=speed, yaxis="y2"))
    figure = _figure(lines, "start of the burst, UTC", "°C")
    figure.update_traces(mode="lines+markers" if len(bursts) <= MARKED_POINTS else "lines")
    figure.update_layout(yaxis2={"title": "speed ratio", "overlaying": "y", "side": "right", "rangemode": "tozero"})
    return Chart(
        "heat", "Heat", "After each burst; a gap is a reading that was not to be had.", 320, str(figure.to_json())
    )


def _latency(ttft: Spread, total: Spread) -> Chart:
    bars = []
    for name, spread, colour in (("first token", ttft, COLOURS[PREFILL]), ("whole answer", total, COLOURS[DECODE])):
        every = max(1, -(-len(spread.values) // HISTOGRAM_VALUES))
        values = [round(value, 3) for value in spread.values[::every]]
        bars.append(go.Histogram(name=name, x=values, opacity=0.65, marker={"color": colour}, nbinsx=60))
    figure = _figure(bars, "seconds from the burst that took the job", "jobs")
    figure.update_layout(barmode="overlay")
    for spread, dash in ((ttft, "dot"), (total, "dash")):
        for value in (spread.p50, spread.p95):
            if value is not None:
                figure.add_vline(x=round(value, 3), line={"width": 1, "dash": dash, "color": "rgba(128,128,128,0.9)"})
    says = f"First token p50 {_s(ttft.p50)}, p95 {_s(ttft.p95)}; whole answer p50 {_s(total.p50)}, p95 {_s(total.p95)}."
    return Chart("latency", "Latency", says, 320, str(figure.to_json()))


def _figure(traces: Sequence[Any], x: str, y: str) -> go.Figure:
    figure = go.Figure(list(traces))
    clear = "rgba(0,0,0,0)"
    figure.update_layout(
        template="none",
        paper_bgcolor=clear,
        plot_bgcolor=clear,
        margin={"l": 48, "r": 48, "t": 24, "b": 48},
        legend={"orientation": "h", "y": -0.25},
        hovermode="closest",
        dragmode=False,
    )
    figure.update_xaxes(title=x, gridcolor=GRID, zerolinecolor=GRID)
    figure.update_yaxes(title=y, gridcolor=GRID, zerolinecolor=GRID)
    return figure


def _by_node(bursts: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """The bursts of each machine, in the order in which they began, by its name; a run on one machine has none."""
    found: dict[str, list[Record]] = {}
    for burst in sorted(bursts, key=lambda burst: str(burst["started_at"])):
        found.setdefault(_plain(str(burst.get("node") or "")), []).append(burst)
    return list(found.items())


def _when(bursts: Sequence[Record]) -> list[str]:
    return [str(burst["started_at"])[:23] for burst in bursts]


def _heat_of(burst: Record) -> float | None:
    after = (burst.get("heat") or {}).get("after") or {}
    value = after.get("celsius") if isinstance(after, dict) else None
    return value if isinstance(value, int | float) else None


def _speed_of(burst: Record) -> float | None:
    value = (burst.get("speed") or {}).get("ratio")
    return value if isinstance(value, int | float) else None


def _s(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} s"


def _plain(text: str) -> str:
    """A text that Plotly shows as it is: it reads some tags."""
    return text[:80].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
