"""Waits for a machine to be cool before it is measured, where its heat can be read."""

from collections.abc import Callable

from batchrun.heat import Level, Sensed

MOST_S = 180.0
LOOK_S = 2.0
STEADY_C = 0.5  # a machine that cools by less than this between looks has cooled
STEADY_LOOKS = 5


def wait_until_cool(
    sense: Callable[[], Sensed], sleep: Callable[[float], object], most_s: float = MOST_S
) -> tuple[float, str]:
    """Sleeps until the worst sensor says cool, or it cools no further, or time is up.  Gives the seconds and the end.

    Where no heat can be read it gives (0.0, "heat unknown") at once: who measures then rests a set time, or none.
    """
    waited_s, steady, last_c = 0.0, 0, None
    while True:
        reading = sense().worst
        if reading.level in (Level.UNKNOWN, Level.COOL):
            return waited_s, "cool" if reading.level is Level.COOL else "heat unknown"
        cooled = reading.temperature_c is None or last_c is None or last_c - reading.temperature_c >= STEADY_C
        steady, last_c = 0 if cooled else steady + 1, reading.temperature_c
        if steady >= STEADY_LOOKS:
            return waited_s, f"steady at {reading.temperature_c:.0f} °C"
        if waited_s >= most_s:
            return waited_s, f"still {reading.level.word}"
        sleep(LOOK_S)
        waited_s += LOOK_S
