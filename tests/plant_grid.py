"""Fixed bursts and rests on many plants at once: what a governor must beat.

The same machines as `plant.Plant` (same seeds, same differences), one array for all seeds and all pairs of burst and
rest, so that 500 seeds times 36 pairs take seconds.  The last pair never rests.
"""

import numpy as np
from numpy.typing import NDArray
from plant import Plant, Preset

BURSTS_S = RESTS_S = (5, 10, 20, 30, 45, 60)
PAIRS = [(float(burst_s), float(rest_s)) for burst_s in BURSTS_S for rest_s in RESTS_S]
NEVER = (1e9, 1.0)
TICK_S = 0.1


def fixed_pairs(preset: Preset, seeds: range, seconds: float = 3600.0) -> NDArray[np.float64]:
    """Work done a second, 1 at full speed without a rest: a row for each seed, a column for each pair and for none."""
    plants = [Plant(preset, seed) for seed in seeds]
    pairs = np.array([*PAIRS, NEVER])

    def column(values: list[float]) -> NDArray[np.float64]:
        return np.repeat(np.array(values)[:, None], len(pairs), axis=1)

    rise_c = column([plant.preset.rise_c for plant in plants])
    ambient_c = column([plant.preset.ambient_c for plant in plants])
    phase, period_s = column([plant.phase for plant in plants]), column([plant.period_s for plant in plants])
    decay = np.exp(-TICK_S / column([plant.preset.time_constant_s for plant in plants]))
    bursts_s, rests_s = (np.repeat(pairs[None, :, place], len(plants), axis=0) for place in (0, 1))
    temperature_c, left_s = ambient_c.copy(), bursts_s.copy()
    throttled, working = np.zeros_like(rise_c, bool), np.ones_like(rise_c, bool)
    done_s = np.zeros_like(rise_c)
    for tick in range(round(seconds / TICK_S)):
        over_c = np.maximum(0.0, temperature_c - preset.limit_c)
        speed = np.where(throttled, np.maximum(preset.slowest, preset.onset - preset.slope * over_c), 1.0)
        done_s += np.where(working, speed * TICK_S, 0.0)
        power = np.where(working, preset.fixed_power + (1 - preset.fixed_power) * speed, preset.idle_power)
        wander_c = preset.wander_c * np.sin(phase + 2 * np.pi * tick * TICK_S / period_s)
        target_c = ambient_c + wander_c + rise_c * power
        temperature_c = target_c + (temperature_c - target_c) * decay
        throttled = (temperature_c >= preset.limit_c) | (throttled & (temperature_c > preset.release_c))
        left_s -= TICK_S
        turned = left_s <= TICK_S / 2
        working ^= turned
        left_s = np.where(turned, np.where(working, bursts_s, rests_s), left_s)
    return done_s / seconds
