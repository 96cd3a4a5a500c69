"""Sensors that are not files: askers that never wait, NVIDIA, macOS, Termux; all with devices that a test makes."""

import ctypes
import json
import subprocess
import sys
import threading
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from batchrun.cooling import LOOK_S, STEADY_LOOKS, wait_until_cool
from batchrun.errors import UsageError
from batchrun.heat import Contention, Energy, Level, Power, Reading, Sensed, Supply
from batchrun.permission import Rules, check_measurable
from batchrun.thermal import MachineSensors, Opened, nvidia, others, termux
from batchrun.thermal.asked import Asked
from batchrun.thermal.darwin import NOTIFICATION, Darwin
from batchrun.thermal.energy import EnergyMeter
from batchrun.thermal.nvidia import Nvidia, open_nvidia

PATIENCE_S = 30.0


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


# -- asking


def test_an_answer_is_kept_while_it_is_fresh() -> None:
    clock, count = Clock(), iter(range(10))
    asked = Asked(lambda: next(count), every_s=1.0, fresh_s=5.0, patience_s=PATIENCE_S, clock=clock)
    assert [asked.latest(), asked.latest()] == [0, 0]
    clock.now_s = 1.0
    assert asked.latest() == 1


def test_a_sensor_that_hangs_costs_one_thread_and_one_wait() -> None:
    release, clock = threading.Event(), Clock()
    asked = Asked(lambda: release.wait(PATIENCE_S), patience_s=0.0, clock=clock)
    before = threading.active_count()
    for second in range(50):
        clock.now_s = float(second)
        assert asked.latest() is None
    assert threading.active_count() == before + 1
    assert asked.error == "no answer in time"
    release.set()


def test_an_answer_that_is_not_renewed_is_forgotten() -> None:
    clock, hangs = Clock(), threading.Event()
    answers = iter(["cool"])
    asked = Asked(lambda: next(answers, None) or hangs.wait(PATIENCE_S), fresh_s=5.0, patience_s=1.0, clock=clock)
    assert asked.latest() == "cool"
    clock.now_s = 4.0
    assert asked.latest(0.0) == "cool"
    clock.now_s = 6.0
    assert asked.latest(0.0) is None
    hangs.set()


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("x"), KeyError("y"), ZeroDivisionError(), Exception()])
def test_whatever_a_driver_raises_is_no_answer(error: Exception) -> None:
    def read() -> str:
        raise error

    asked = Asked(read, patience_s=PATIENCE_S)
    assert asked.latest() is None
    assert type(error).__name__ in asked.error


def test_one_failed_reading_is_skipped() -> None:
    clock, answers = Clock(), iter([5.0, None, OSError("busy"), 9.0])

    def read() -> float | None:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    asked = Asked(read, every_s=1.0, fresh_s=5.0, patience_s=PATIENCE_S, clock=clock)
    seen = []
    for second in range(4):
        clock.now_s = float(second)
        seen.append(asked.latest())
    assert seen == [5.0, 5.0, 5.0, 9.0]


def test_an_answer_that_is_late_is_none_of_now() -> None:
    clock, release = Clock(), threading.Event()
    count = iter(range(10))

    def read() -> int:
        number = next(count)
        if number:
            release.wait(PATIENCE_S)
        return number

    asked = Asked(read, every_s=0.0, fresh_s=5.0, patience_s=1.0, clock=clock)
    assert asked.now() == 0
    assert asked.now() is None  # it hangs
    assert asked.now() is None  # and is not asked again meanwhile
    assert asked.latest() == 0
    release.set()


def test_counters_that_are_late_are_not_taken_for_those_of_now() -> None:
    clock, hangs, release = Clock(), threading.Event(), threading.Event()

    def read() -> Contention:
        if hangs.is_set():
            release.wait(PATIENCE_S)
        return Contention(quota_s=1.0)

    found = MachineSensors({}, read, lambda: None, {}, clock=clock)
    while found.contention() != Contention(quota_s=1.0):
        pass
    hangs.set()
    assert found.contention() is None
    clock.now_s = 60.0
    assert found.contention() == Contention()  # it hangs for good: none can be read
    release.set()


def test_where_no_thread_can_be_started_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    asked = Asked(lambda: 1)
    assert asked.latest() is None
    assert "can't start new thread" in asked.error
    assert asked.now() is None


def test_a_device_is_opened_once_whoever_asks_first() -> None:
    opened, gate = [], threading.Event()

    def open_device() -> SimpleNamespace:
        opened.append(1)
        gate.wait(PATIENCE_S)
        return SimpleNamespace(readings=lambda elapsed_s: (), joules=lambda: 1.0)

    device = Opened(open_device)
    threads = [threading.Thread(target=device.joules) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert opened == [1]


def test_the_power_source_waits_for_a_first_answer() -> None:
    def slow() -> Supply:
        threading.Event().wait(0.3)
        return Supply(Power.BATTERY)

    assert MachineSensors({}, Contention, slow, {}).sense().supply == Supply()
    assert MachineSensors({}, Contention, slow, {}).supply(PATIENCE_S) == Supply(Power.BATTERY)


def test_one_that_fails_hides_no_other() -> None:
    def broken(elapsed_s: float) -> tuple[Reading, ...]:
        raise OSError("no such device")

    hot = Reading("fine", Level.HOT)
    found = MachineSensors({"broken": broken, "fine": lambda elapsed_s: (hot,)}, Contention, lambda: None, {})
    found.settle(PATIENCE_S)
    sensed = found.sense()
    assert [reading.level for reading in sensed.readings] == [Level.UNKNOWN, Level.HOT]
    assert sensed.readings[0].note == "OSError: no such device"
    assert sensed.worst == hot
    assert sensed.supply == Supply()


# -- NVIDIA


class NvmlError(Exception):
    pass


class Card:
    """One device and its driver, as nvidia-ml-py shows them."""

    NVMLError = NvmlError

    def __init__(self, **answers: Any) -> None:
        self.answers = {"reasons": 0, "celsius": 60, "slowdown": 90, "gpu": 99, "mj": 1000} | answers

    def ask(self, name: str) -> Any:
        if self.answers[name] is None:
            raise NvmlError(name)
        return self.answers[name]

    def nvmlInit(self) -> None:  # noqa: N802
        self.ask("gpu")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        return number

    def nvmlDeviceGetCurrentClocksEventReasons(self, device: int) -> Any:  # noqa: N802
        return self.ask("reasons")

    def nvmlDeviceGetTemperature(self, device: int, kind: int) -> Any:  # noqa: N802
        return self.ask("celsius")

    def nvmlDeviceGetTemperatureThreshold(self, device: int, kind: int) -> Any:  # noqa: N802
        assert kind == 1
        return self.ask("slowdown")

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self.ask("gpu"))

    def nvmlDeviceGetTotalEnergyConsumption(self, device: int) -> Any:  # noqa: N802
        return self.ask("mj")


class OldCard(Card):
    """A driver from before the clock-event names."""

    nvmlDeviceGetCurrentClocksEventReasons = None  # type: ignore[assignment]  # noqa: N815

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: int) -> Any:  # noqa: N802
        return self.ask("reasons")


@pytest.mark.parametrize("card", [Card, OldCard])
@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ({}, Level.COOL),
        ({"celsius": 84}, Level.WARM),
        ({"reasons": 0x20}, Level.HOT),
        ({"reasons": 0x40}, Level.HOT),
        ({"reasons": 0x40, "gpu": 0}, Level.HOT),
        ({"reasons": 0x4}, Level.COOL),
        ({"reasons": 0x80}, Level.COOL),
        ({"gpu": 0}, Level.UNKNOWN),
        ({"gpu": None}, Level.UNKNOWN),
        ({"reasons": None}, Level.UNKNOWN),
        ({"reasons": None, "celsius": None, "slowdown": None, "gpu": None, "mj": None}, Level.UNKNOWN),
    ],
)
def test_reasons_of_an_accelerator(card: type[Card], answers: dict[str, Any], wanted: Level) -> None:
    assert Nvidia(card(**answers)).readings(1.0)[0].level is wanted


def test_a_power_limit_is_no_heat_and_counted_as_waiting() -> None:
    nvml = Nvidia(Card(reasons=0x4))
    assert nvml.readings(2.0)[0].note == "power limit"
    nvml.readings(1.0)
    assert nvml.power_s == 3.0
    assert Nvidia(Card(reasons=0x20)).power_s == 0.0


def test_energy_of_an_accelerator_counts_once_it_worked() -> None:
    card = Card(gpu=0)
    nvml = Nvidia(card)
    nvml.readings(1.0)
    assert nvml.joules() is None
    card.answers |= {"gpu": 50, "mj": 6000}
    nvml.readings(1.0)
    assert nvml.joules() == pytest.approx(5.0)
    card.answers["mj"] = None
    assert nvml.joules() is None


def test_an_accelerator_that_will_count_is_a_meter_and_one_that_idles_on_is_none() -> None:
    card = Card(gpu=0)
    nvml = Nvidia(card)
    assert not nvml.will_count
    nvml.readings(1.0)
    assert nvml.joules() is None
    assert nvml.will_count
    nvml.readings(nvidia.IDLE_S)
    assert not nvml.will_count
    sensed = Sensed(energy=EnergyMeter().energy(None, None, None, False, awaited="nvml"))
    assert sensed.energy == Energy(None, "nvml")
    rule = Rules(max_energy_wh=1.0)
    check_measurable(rule, sensed)
    assert rule.broken(sensed, datetime(2026, 11, 30)) == ""
    with pytest.raises(UsageError):
        check_measurable(rule, Sensed())


def test_no_package_or_no_driver_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_nvidia() is None
    monkeypatch.setitem(sys.modules, "pynvml", Card(gpu=None))  # type: ignore[arg-type]
    assert open_nvidia() is None
    monkeypatch.setitem(sys.modules, "pynvml", Card())  # type: ignore[arg-type]
    found = open_nvidia()
    assert found
    assert found.readings(1.0)[0].source == "nvidia 0"
    assert nvidia.HEAT_REASONS & nvidia.POWER_REASONS == 0


# -- macOS


class LibSystem:
    """notify(3) with a state that a test sets."""

    def __init__(self, state: int, register: int = 0, get: int = 0) -> None:
        self.state, self.register, self.get = state, register, get

    def notify_register_check(self, name: bytes, token: Any) -> int:
        assert name == NOTIFICATION
        return self.register

    def notify_get_state(self, token: Any, state: Any) -> int:
        ctypes.cast(state, ctypes.POINTER(ctypes.c_uint64))[0] = self.state
        return self.get


class ObjectiveC:
    """The Objective-C runtime as far as NSProcessInfo needs it."""

    def __init__(self, state: int | None, info: int = 7) -> None:
        self.state, self.info = state, info

    def objc_getClass(self, name: bytes) -> int:  # noqa: N802
        return 1

    def sel_registerName(self, name: bytes) -> bytes:  # noqa: N802
        return name

    def objc_msgSend(self, receiver: int, selector: bytes) -> int | None:  # noqa: N802
        return self.info if selector == b"processInfo" else self.state


@pytest.mark.parametrize(
    ("state", "wanted"),
    [(0, Level.COOL), (1, Level.WARM), (2, Level.HOT), (3, Level.CRITICAL), (4, Level.CRITICAL), (9, Level.UNKNOWN)],
)
def test_five_levels_of_pressure(state: int, wanted: Level) -> None:
    assert Darwin(LibSystem(state)).readings(1.0)[0].level is wanted


@pytest.mark.parametrize("system", [LibSystem(0, register=1), LibSystem(0, get=1)])
def test_a_notification_that_is_not_there_is_unknown(system: LibSystem) -> None:
    assert Darwin(system).readings(1.0)[0].level is Level.UNKNOWN


@pytest.mark.parametrize(
    ("state", "wanted"), [(None, Level.COOL), (1, Level.WARM), (2, Level.HOT), (3, Level.CRITICAL), (7, Level.UNKNOWN)]
)
def test_the_process_info_is_the_second_source(state: int | None, wanted: Level) -> None:
    readings = Darwin(LibSystem(0), ObjectiveC(state)).readings(1.0)
    assert [reading.source for reading in readings] == ["thermal pressure", "process info"]
    assert readings[1].level is wanted


def test_no_process_info_is_unknown() -> None:
    assert Darwin(LibSystem(0), ObjectiveC(0, info=0)).readings(1.0)[1].level is Level.UNKNOWN


def test_a_battery_by_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    for battery, wanted in (
        (None, Supply(Power.MAINS)),
        (SimpleNamespace(percent=60, power_plugged=True), Supply(Power.MAINS, 60.0, draining=False)),
        (SimpleNamespace(percent=60, power_plugged=False), Supply(Power.BATTERY, 60.0, draining=True)),
        (SimpleNamespace(percent=60, power_plugged=None), Supply(Power.UNKNOWN, 60.0, draining=False)),
    ):
        monkeypatch.setattr(others.psutil, "sensors_battery", lambda battery=battery: battery, raising=False)
        assert others.psutil_supply() == wanted
    monkeypatch.delattr(others.psutil, "sensors_battery")
    assert others.psutil_supply() == Supply()


def test_waiting_by_psutil_is_what_others_took_and_swapping(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(seconds=lambda: 100.0)
    monkeypatch.setattr(others.psutil, "cpu_times", lambda: SimpleNamespace(user=300.0, system=40.0))
    monkeypatch.setattr(others.psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(others.psutil, "swap_memory", lambda: SimpleNamespace(sin=4096 * 10_000, sout=0))
    assert others.PsutilLoad(own).contention() == Contention(others_s=60.0, stall_s=1.0, processors=4)  # type: ignore[arg-type]


# -- Termux


def status(**changes: Any) -> str:
    battery = {"health": "GOOD", "percentage": 71, "plugged": "UNPLUGGED", "status": "DISCHARGING", "temperature": 33.2}
    return json.dumps(battery | changes)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (status(), Level.UNKNOWN),
        (status(temperature=45.1), Level.HOT),
        (status(health="OVERHEAT"), Level.HOT),
        (status(temperature=56), Level.CRITICAL),
        (status(temperature="warm"), Level.UNKNOWN),
        (status(temperature=-3000), Level.UNKNOWN),
    ],
)
def test_a_phones_battery_can_be_hot_and_never_cool(answer: str, wanted: Level) -> None:
    assert termux.Termux(lambda: answer).status()[0].level is wanted


def test_a_phones_supply() -> None:
    assert termux.Termux(status).status()[1] == Supply(Power.BATTERY, 71.0, draining=True)
    plugged = termux.Termux(lambda: status(plugged="PLUGGED_AC", status="FULL"))
    assert plugged.status()[1] == Supply(Power.MAINS, 71.0, draining=False)


@pytest.mark.parametrize("answer", ["", "[]", "no"])
def test_a_phone_that_answers_nonsense_is_unknown(answer: str) -> None:
    found = MachineSensors({}, Contention, lambda: None, {}, termux.Termux(lambda: answer))
    found.settle(PATIENCE_S)
    assert found.sense().worst.level is Level.UNKNOWN
    assert found.sense().supply == Supply()


def test_the_command_gets_three_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def never_answers(command: list[str], **options: Any) -> None:
        given.update(options, command=command)
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", never_answers)
    found = MachineSensors({}, Contention, lambda: None, {}, termux.Termux())
    found.settle(PATIENCE_S)
    assert (given["command"], given["timeout"]) == ([termux.COMMAND], 3.0)
    assert found.sense().worst.level is Level.UNKNOWN


# -- energy


def test_the_best_meter_is_taken_and_named() -> None:
    meter = EnergyMeter()
    assert meter.energy(None, None, None, False).joules is None
    assert meter.energy(5.0, None, 1000.0, True).method == "rapl"
    found = meter.energy(5.0, 7.0, 1000.0, True)
    assert (found.joules, found.method) == (12.0, "rapl+nvml")


def test_a_battery_counts_while_it_drains() -> None:
    meter = EnergyMeter()
    spent = [meter.energy(None, None, left, True).joules for left in (1000.0, 990.0, 985.0)]
    assert spent == [0.0, 10.0, 15.0]
    assert meter.energy(None, None, 985.0, True).method == "battery"
    assert [meter.energy(None, None, left, True).joules for left in (990.0, 985.0, 988.0, 985.0)] == [15.0] * 4  # noise
    meter.energy(None, None, 1100.0, False)
    found = meter.energy(None, None, 1090.0, True)
    assert (found.joules, found.method) == (15.0, "battery, part of the time")
    assert meter.energy(None, None, 1080.0, True).joules == 25.0


# -- waiting for a cool machine


def cooling(*temperatures: float) -> list[Sensed]:
    levels = [(c, Level.HOT if c >= 90 else Level.WARM if c >= 82 else Level.COOL) for c in temperatures]
    return [Sensed((Reading("s", level, c, 90.0),)) for c, level in levels]


def test_a_machine_is_waited_for_until_it_is_cool() -> None:
    looks, slept = iter(cooling(95, 91, 86, 80)), []
    assert wait_until_cool(lambda: next(looks), slept.append) == (3 * LOOK_S, "cool")
    assert slept == [LOOK_S] * 3


def test_one_that_cools_no_further_is_not_waited_for() -> None:
    looks = iter(cooling(*[84.0] * 100))
    waited_s, how = wait_until_cool(lambda: next(looks), lambda seconds: None)
    assert (waited_s, how) == ((STEADY_LOOKS) * LOOK_S, "steady at 84 °C")


def test_one_whose_heat_is_unknown_is_not_waited_for() -> None:
    assert wait_until_cool(Sensed, lambda seconds: None) == (0.0, "heat unknown")


def test_the_wait_has_an_end() -> None:
    looks = iter(cooling(*[200.0 - place for place in range(110)]))
    waited_s, how = wait_until_cool(lambda: next(looks), lambda seconds: None, most_s=60.0)
    assert (waited_s, how) == (60.0, "still hot")
