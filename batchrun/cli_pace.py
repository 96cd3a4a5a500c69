"""The part of the command line that is about heat and pace: options of `run`, and `batchrun calibrate`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from batchrun import completions

AUTO = "auto"


def seconds_or_auto(text: str) -> float | str:
    """What an option for seconds holds; its bounds are checked with those of all settings."""
    if text == AUTO:
        return AUTO
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor {AUTO}") from None


BurstSeconds = Annotated[
    float | None,
    typer.Option(
        parser=seconds_or_auto,
        metavar="SECONDS",
        help="Work in one burst. Default: auto, which follows the machine's heat.",
    ),
]
RestSeconds = Annotated[
    float | None,
    typer.Option(
        parser=seconds_or_auto,
        metavar="SECONDS",
        help="Rest between bursts; 0 never rests. Default: auto: none on a machine that stays cool.",
    ),
]
Duty = Annotated[float | None, typer.Option(help="Largest share of time to work, such as 0.5. Default: 1.")]
OnlyOnAc = Annotated[bool | None, typer.Option("--only-on-ac/--also-on-battery", help="Stop on battery, with 75.")]
MinBattery = Annotated[float | None, typer.Option(help="Stop below this charge while it drains, in percent.")]
QuietHours = Annotated[str | None, typer.Option(help="Hours not to run in, such as 08:00-18:00.")]
Until = Annotated[str | None, typer.Option(help="Stop at this time of the day, such as 06:30; the rest resumes.")]
MaxEnergy = Annotated[str | None, typer.Option(help="Stop after so much energy, such as 40Wh.")]
Priority = Annotated[str | None, typer.Option(help="auto (default: low where a scheduler started it), normal or low.")]
Awake = Annotated[
    bool | None,
    typer.Option("--keep-awake/--may-sleep", help="Keep the machine from sleeping while a burst runs (default)."),
]


def calibrate(
    jobs: Annotated[list[Path] | None, typer.Argument(metavar="[JOBS]...", help="Job files to sample.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One minute instead of up to fifteen, and rougher.")] = False,
    model: Annotated[str | None, typer.Option(help="As for run.", autocompletion=completions.models)] = None,
    engine: Annotated[
        str | None, typer.Option(help="As for run.", autocompletion=completions.choices("engine"))
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="As for run.", autocompletion=completions.choices("weights"))
    ] = None,
    parallel: Annotated[int | None, typer.Option(help="As for run.")] = None,
    threads: Annotated[int | None, typer.Option(help="As for run.")] = None,
    config: Annotated[Path | None, typer.Option(help="As for run.")] = None,
) -> None:
    """Measure this device with this model: cool speeds, and how it stands heat. Later runs and estimates use it.

    Works the machine as hard as a run would: until it throttles or five minutes have passed, then in bursts with gaps
    of 30 and 90 seconds. Kept apart by model, power source, and who starts it (a terminal, cron, ...).
    """
    from batchrun import calibrate as calibrating
    from batchrun.config import resolve
    from batchrun.launcher import launcher
    from batchrun.thermal import open_sensors

    flags = {"model": model, "engine": engine, "weights": weights, "parallel": parallel, "threads": threads}
    settings = resolve(flags, os.environ, config)
    sensors = open_sensors(threads=threads)
    sensors.settle()
    found = calibrating.calibrate(
        settings, jobs or [], sensors, launcher(), lambda text: print(text, file=sys.stderr), quick=quick
    )
    typer.echo("\n".join(calibrating.lines(found)))
