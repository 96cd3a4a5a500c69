"""Sensors of real machines, from copies of their files: only the processor counts, by its own limits.

Each layout is written down as its files were; the folder is what `root` points at.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.heat import Level, Power, Reading, Supply
from batchrun.thermal import MachineSensors, open_sensors
from batchrun.thermal.files import folders
from batchrun.thermal.linux_heat import LinuxHeat, level
from batchrun.thermal.linux_load import LinuxLoad
from batchrun.thermal.linux_power import LinuxPower
from batchrun.thermal.others import PsutilLoad
from batchrun.thermal.own_time import OwnTime

Files = Mapping[str, object]

HWMON, ZONES = "sys/class/hwmon", "sys/class/thermal"
SUPPLY, CPU = "sys/class/power_supply", "sys/devices/system/cpu"

INTEL_LAPTOP: Files = {
    f"{HWMON}/hwmon0/name": "acpitz",
    f"{HWMON}/hwmon0/temp1_input": 27800,
    f"{HWMON}/hwmon1/name": "nvme",
    f"{HWMON}/hwmon1/temp1_input": 38850,
    f"{HWMON}/hwmon1/temp1_crit": 84850,
    f"{HWMON}/hwmon4/name": "coretemp",
    f"{HWMON}/hwmon4/temp1_label": "Package id 0",
    f"{HWMON}/hwmon4/temp1_input": 71000,
    f"{HWMON}/hwmon4/temp1_max": 100000,
    f"{HWMON}/hwmon4/temp1_crit": 100000,
    f"{HWMON}/hwmon4/temp1_crit_alarm": 0,
    f"{HWMON}/hwmon4/temp2_label": "Core 0",
    f"{HWMON}/hwmon4/temp2_input": 69000,
    f"{HWMON}/hwmon4/temp2_max": 100000,
    f"{HWMON}/hwmon5/name": "iwlwifi_1",
    f"{HWMON}/hwmon5/temp1_input": 52000,
    f"{ZONES}/thermal_zone0/type": "acpitz",
    f"{ZONES}/thermal_zone0/temp": 27800,
    f"{ZONES}/thermal_zone7/type": "x86_pkg_temp",
    f"{ZONES}/thermal_zone7/temp": 71000,
    f"{ZONES}/thermal_zone7/trip_point_0_type": "passive",
    f"{ZONES}/thermal_zone7/trip_point_0_temp": -274000,
    f"{ZONES}/cooling_device0/type": "Processor",
    f"{ZONES}/cooling_device0/cur_state": 0,
    f"{ZONES}/cooling_device0/max_state": 10,
    f"{CPU}/cpu0/thermal_throttle/core_throttle_count": 12,
    f"{CPU}/cpu0/thermal_throttle/core_throttle_total_time_ms": 340,
    f"{CPU}/cpu0/thermal_throttle/package_throttle_count": 40,
    f"{CPU}/cpu0/thermal_throttle/package_throttle_total_time_ms": 900,
    f"{CPU}/cpufreq/policy0/scaling_max_freq": 4200000,
    f"{SUPPLY}/AC/type": "Mains",
    f"{SUPPLY}/AC/online": 1,
    f"{SUPPLY}/BAT0/type": "Battery",
    f"{SUPPLY}/BAT0/present": 1,
    f"{SUPPLY}/BAT0/status": "Charging",
    f"{SUPPLY}/BAT0/capacity": 81,
    f"{SUPPLY}/BAT0/energy_now": 41000000,
    f"{SUPPLY}/BAT0/energy_full": 50500000,
    f"{SUPPLY}/hidpp_battery_0/type": "Battery",
    f"{SUPPLY}/hidpp_battery_0/scope": "Device",
    f"{SUPPLY}/hidpp_battery_0/status": "Discharging",
    f"{SUPPLY}/hidpp_battery_0/capacity": 15,
}
AMD_DESKTOP: Files = {
    f"{HWMON}/hwmon0/name": "nvme",
    f"{HWMON}/hwmon0/temp1_input": 44850,
    f"{HWMON}/hwmon2/name": "k10temp",
    f"{HWMON}/hwmon2/temp1_label": "Tctl",
    f"{HWMON}/hwmon2/temp1_input": 63500,
    f"{HWMON}/hwmon2/temp3_label": "Tccd1",
    f"{HWMON}/hwmon2/temp3_input": 58250,
    f"{HWMON}/hwmon3/name": "amdgpu",
    f"{HWMON}/hwmon3/temp1_input": 96000,
    f"{HWMON}/hwmon3/temp1_crit": 100000,
    f"{HWMON}/hwmon4/name": "nct6798",
    f"{HWMON}/hwmon4/temp1_input": 118000,
    f"{CPU}/cpufreq/policy0/scaling_max_freq": 4850000,
    "sys/class/power_supply/.keep": "",
}
RASPBERRY_PI: Files = {
    f"{HWMON}/hwmon0/name": "cpu_thermal",
    f"{HWMON}/hwmon0/temp1_input": 61830,
    f"{HWMON}/hwmon0/temp1_crit": 110000,
    f"{HWMON}/hwmon1/name": "rpi_volt",
    f"{HWMON}/hwmon1/in0_lcrit_alarm": 0,
    f"{ZONES}/thermal_zone0/type": "cpu-thermal",
    f"{ZONES}/thermal_zone0/temp": 61830,
    f"{ZONES}/thermal_zone0/trip_point_0_type": "critical",
    f"{ZONES}/thermal_zone0/trip_point_0_temp": 110000,
    "sys/devices/platform/soc/soc:firmware/get_throttled": "0",
}
CONTAINER: Files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.stat": "usage_usec 9\nthrottled_usec 1500000"}
TWO_BATTERIES: Files = {
    f"{HWMON}/hwmon3/name": "coretemp",
    f"{HWMON}/hwmon3/temp1_label": "Package id 0",
    f"{HWMON}/hwmon3/temp1_input": 55000,
    f"{HWMON}/hwmon3/temp1_max": 87000,
    f"{HWMON}/hwmon3/temp1_crit": 105000,
    f"{SUPPLY}/AC/type": "Mains",
    f"{SUPPLY}/AC/online": 0,
    f"{SUPPLY}/BAT0/type": "Battery",
    f"{SUPPLY}/BAT0/status": "Unknown",
    f"{SUPPLY}/BAT0/capacity": 90,
    f"{SUPPLY}/BAT0/energy_now": 18000000,
    f"{SUPPLY}/BAT0/energy_full": 20000000,
    f"{SUPPLY}/BAT1/type": "Battery",
    f"{SUPPLY}/BAT1/status": "Discharging",
    f"{SUPPLY}/BAT1/capacity": 30,
    f"{SUPPLY}/BAT1/energy_now": 18000000,
    f"{SUPPLY}/BAT1/energy_full": 60000000,
}
HOT_NVME: Files = {
    f"{HWMON}/hwmon0/name": "nvme",
    f"{HWMON}/hwmon0/temp1_label": "Composite",
    f"{HWMON}/hwmon0/temp1_input": 83850,
    f"{HWMON}/hwmon0/temp1_max": 81850,
    f"{HWMON}/hwmon0/temp1_crit": 84850,
    f"{HWMON}/hwmon1/name": "coretemp",
    f"{HWMON}/hwmon1/temp1_label": "Package id 0",
    f"{HWMON}/hwmon1/temp1_input": 41000,
    f"{HWMON}/hwmon1/temp1_crit": 100000,
}
PHONE: Files = {
    f"{ZONES}/thermal_zone0/type": "soc",  # state of charge, in percent
    f"{ZONES}/thermal_zone0/temp": 88000,
    f"{ZONES}/thermal_zone3/type": "cpu-1-3-usr",
    f"{ZONES}/thermal_zone3/temp": 67200,
    f"{ZONES}/thermal_zone3/trip_point_0_type": "passive",
    f"{ZONES}/thermal_zone3/trip_point_0_temp": 95000,
    f"{ZONES}/thermal_zone9/type": "gpuss-0-usr",
    f"{ZONES}/thermal_zone9/temp": 99000,
    f"{SUPPLY}/usb/type": "USB",
    f"{SUPPLY}/usb/online": 0,
    f"{SUPPLY}/battery/type": "Battery",
    f"{SUPPLY}/battery/status": "Discharging",
    f"{SUPPLY}/battery/capacity": 64,
    f"{SUPPLY}/battery/charge_now": 3000000,
    f"{SUPPLY}/battery/voltage_now": 3850000,
}
LAYOUTS = {
    "Intel laptop": INTEL_LAPTOP,
    "AMD desktop": AMD_DESKTOP,
    "Raspberry Pi": RASPBERRY_PI,
    "container": CONTAINER,
    "two batteries": TWO_BATTERIES,
    "hot nvme": HOT_NVME,
    "phone": PHONE,
}


def laid(root: Path, *layers: Files) -> Path:
    """Writes files under a root; a later layer changes an earlier one."""
    for files in layers:
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")
    return root


def sensors(root: Path, *layers: Files) -> MachineSensors:
    found = open_sensors(laid(root, *layers), "Linux")
    found.settle()
    return found


def readings(root: Path, *layers: Files) -> dict[str, Reading]:
    return {reading.source: reading for reading in LinuxHeat(laid(root, *layers)).readings(1.0)}


class Own(OwnTime):
    """So much processor time of our own."""

    def __init__(self, own_s: float) -> None:
        self._own_s = own_s

    def seconds(self) -> float:
        return self._own_s


class Alone(OwnTime):
    """This process without its children."""

    def seconds(self) -> float:
        return time.process_time()


# -- whole layouts


def test_an_intel_laptop(tmp_path: Path) -> None:
    sensed = sensors(tmp_path, INTEL_LAPTOP).sense()
    assert [(reading.source, reading.level) for reading in sensed.readings] == [
        ("coretemp", Level.COOL),
        ("zone x86_pkg_temp", Level.UNKNOWN),
        ("throttle counters", Level.UNKNOWN),
    ]
    assert sensed.worst == Reading("coretemp", Level.COOL, 71.0, 100.0, "Package id 0")
    assert sensed.supply == Supply(Power.MAINS, 81.0, draining=False)


def test_an_amd_desktop_whose_sensor_knows_no_limit(tmp_path: Path) -> None:
    sensed = sensors(tmp_path, AMD_DESKTOP).sense()
    assert sensed.worst == Reading("k10temp", Level.UNKNOWN, 63.5, None, "Tctl")
    assert sensed.supply == Supply(Power.MAINS, None, draining=False)


def test_a_raspberry_pi_is_judged_by_its_firmware(tmp_path: Path) -> None:
    found = readings(tmp_path, RASPBERRY_PI)
    assert {name: reading.level for name, reading in found.items()} == {
        "cpu_thermal": Level.UNKNOWN,
        "zone cpu-thermal": Level.UNKNOWN,
        "firmware": Level.COOL,
    }
    firmware = "sys/devices/platform/soc/soc:firmware/get_throttled"
    for bits, wanted in (("50000", Level.COOL), ("50005", Level.HOT), ("8", Level.HOT), ("x", Level.UNKNOWN)):
        assert readings(tmp_path, RASPBERRY_PI, {firmware: bits})["firmware"].level is wanted


def test_a_container_has_no_heat_to_read_and_a_quota(tmp_path: Path) -> None:
    found = open_sensors(laid(tmp_path, CONTAINER), "Linux", threads=1)
    found.settle()
    assert found.sense().readings == ()
    assert found.sense().worst.level is Level.UNKNOWN
    assert found.sense().supply.source is Power.UNKNOWN
    assert found.contention().quota_s == pytest.approx(1.5)


def test_two_batteries_are_one_supply(tmp_path: Path) -> None:
    sensed = sensors(tmp_path, TWO_BATTERIES).sense()
    assert sensed.supply == Supply(Power.BATTERY, 45.0, draining=True)
    assert sensed.worst.limit_c == 87.0
    assert sensed.energy.method == "battery"


def test_an_nvme_hotter_than_the_processor_is_nobodys_affair(tmp_path: Path) -> None:
    sensed = sensors(tmp_path, HOT_NVME).sense()
    assert sensed.worst == Reading("coretemp", Level.COOL, 41.0, 100.0, "Package id 0")


def test_a_phones_processor_and_not_its_charge_or_its_gpu(tmp_path: Path) -> None:
    sensed = sensors(tmp_path, PHONE).sense()
    assert sensed.readings == (Reading("zone cpu-1-3-usr", Level.COOL, 67.2, 95.0),)
    assert sensed.supply == Supply(Power.BATTERY, 64.0, draining=True)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_no_reading_is_cool_where_files_are_broken(tmp_path: Path, layout: str) -> None:
    for content in ("", "garbage", "-1", "9" * 30, "\x00", "0"):
        ends = ("_input", "/temp", "throttled", "_count")
        broken = {name: content for name in LAYOUTS[layout] if name.endswith(ends)}
        found = LinuxHeat(laid(tmp_path, LAYOUTS[layout], broken)).readings(1.0)
        named = {r.source: r.level for r in found if r.source != "firmware" or content not in ("0", "-1")}
        assert Level.COOL not in named.values(), (content, named)


# -- levels


@given(st.floats(1, 149), st.none() | st.floats(30, 140), st.none() | st.floats(30, 140))
def test_a_hotter_processor_has_no_lower_level(celsius: float, hot_c: float | None, shutdown_c: float | None) -> None:
    assert level(celsius, hot_c, shutdown_c) <= level(celsius + 1, hot_c, shutdown_c)
    assert level(celsius, None, None) is Level.UNKNOWN
    assert level(celsius, None, shutdown_c) is not Level.COOL


@pytest.mark.parametrize(
    ("celsius", "wanted"), [(50, Level.COOL), (93, Level.WARM), (100, Level.HOT), (104, Level.HOT)]
)
def test_coretemp_is_hot_where_the_processor_slows_itself(tmp_path: Path, celsius: int, wanted: Level) -> None:
    found = readings(tmp_path, INTEL_LAPTOP, {f"{HWMON}/hwmon4/temp1_input": celsius * 1000})
    assert found["coretemp"].level is wanted


def test_an_alarm_is_hot_whatever_the_temperature(tmp_path: Path) -> None:
    found = readings(tmp_path, INTEL_LAPTOP, {f"{HWMON}/hwmon4/temp1_crit_alarm": 1})
    assert found["coretemp"].level is Level.HOT


def test_a_zone_near_its_shutdown_is_critical(tmp_path: Path) -> None:
    found = readings(tmp_path, RASPBERRY_PI, {f"{ZONES}/thermal_zone0/temp": 108000})
    assert found["zone cpu-thermal"].level is Level.CRITICAL


def test_a_processor_that_the_kernel_cools_is_hot(tmp_path: Path) -> None:
    found = readings(tmp_path, INTEL_LAPTOP, {f"{ZONES}/cooling_device0/cur_state": 3})
    assert found["cooling Processor"] == Reading("cooling Processor", Level.HOT, note="state 3 of 10")


def test_throttle_counters_count_from_one_reading_to_the_next(tmp_path: Path) -> None:
    heat = LinuxHeat(laid(tmp_path, INTEL_LAPTOP))
    path = f"{CPU}/cpu0/thermal_throttle/package_throttle_total_time_ms"

    def after(total_ms: int) -> Level:
        laid(tmp_path, {path: total_ms})
        return next(r.level for r in heat.readings(1.0) if r.source == "throttle counters")

    assert [after(900), after(900), after(910), after(1410), after(1410)] == [
        Level.UNKNOWN,
        Level.COOL,
        Level.WARM,
        Level.HOT,
        Level.COOL,
    ]


def test_counters_without_times_are_hot_when_they_grow(tmp_path: Path) -> None:
    old = {name: value for name, value in INTEL_LAPTOP.items() if not name.endswith("_ms")}
    heat = LinuxHeat(laid(tmp_path, old))
    heat.readings(1.0)
    laid(tmp_path, {f"{CPU}/cpu0/thermal_throttle/core_throttle_count": 13})
    assert next(r.level for r in heat.readings(1.0) if r.source == "throttle counters") is Level.HOT


def test_a_lowered_clock_is_warm(tmp_path: Path) -> None:
    heat = LinuxHeat(laid(tmp_path, INTEL_LAPTOP))
    assert "cpufreq" not in {r.source for r in heat.readings(1.0)}
    laid(tmp_path, {f"{CPU}/cpufreq/policy0/scaling_max_freq": 2100000})
    assert Reading("cpufreq", Level.WARM, note="capped at 2100 of 4200 MHz") in heat.readings(1.0)


# -- waiting


def test_the_quotas_of_all_groups_above_count(tmp_path: Path) -> None:
    root = laid(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b",
            "sys/fs/cgroup/cgroup.procs": "",
            "sys/fs/cgroup/a/cpu.stat": "throttled_usec 2000000",
            "sys/fs/cgroup/a/b/cpu.stat": "nr_periods 3\nthrottled_usec 500000",
            "sys/fs/cgroup/a/b/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=7000000\nfull total=1",
            "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=99000000",
        },
    )
    found = LinuxLoad(root, threads=1).contention()
    assert (found.quota_s, found.pressure_s) == (pytest.approx(2.5), pytest.approx(7.0))
    assert LinuxLoad(root, threads=5).contention().quota_s == pytest.approx(0.5)  # of every thread that was held back


def test_an_old_control_group_counts_in_nanoseconds(tmp_path: Path) -> None:
    root = laid(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/job\n0::/",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 3000000000",
        },
    )
    assert LinuxLoad(root, threads=1).contention().quota_s == pytest.approx(3.0)


def test_other_processes_the_host_and_memory_are_counted(tmp_path: Path) -> None:
    root = laid(
        tmp_path,
        {
            "proc/stat": "cpu  1000000 0 0 5 5 0 0 300 0 0\ncpu0 5 0 0\ncpu1 5 0 0\nintr 5",
            "proc/vmstat": "nr_free_pages 1\npswpin 20000\npswpout 10000",
        },
    )
    found = LinuxLoad(root, threads=8, own=Own(400.0)).contention()
    assert found.others_s == pytest.approx(4800.0)  # on the mean of two processors, less our own
    assert found.processors == 2
    assert found.steal_s == pytest.approx(1.5)  # two processors cannot lose more threads than two their time
    assert LinuxLoad(root, threads=1, own=Own(400.0)).contention().steal_s == pytest.approx(3.0)
    assert found.stall_s == pytest.approx(3.0)
    laid(root, {"proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=4000000"})
    assert LinuxLoad(root, threads=1).contention().stall_s == pytest.approx(4.0)


def test_a_kernel_that_does_not_count_our_own_time_counts_nobodys(tmp_path: Path) -> None:
    root = laid(tmp_path, {"proc/stat": "cpu  100 0 0 5 5 0 0 300 0 0\ncpu0 5 0 0"})
    assert LinuxLoad(root, threads=1, own=Own(400.0)).contention().others_s is None


BUSY_S = 1.0
CHILD = f"""
import sys, time
while time.process_time() < {BUSY_S}:
    pass
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("shell", [False, True])
def test_what_a_child_of_ours_computes_is_no_neighbours_doing(shell: bool) -> None:
    """The engine runs in a child; and a child may have one of its own."""
    own = OwnTime(iter(range(10)).__next__)
    before_s = own.seconds()
    command = f"{shlex.join([sys.executable, '-c', CHILD])}; true" if shell else [sys.executable, "-c", CHILD]
    child = subprocess.Popen(command, shell=shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin
    assert child.stdout
    assert child.stdout.readline() == "done\n"
    living_s = own.seconds() - before_s
    child.stdin.close()
    child.wait()
    child.stdout.close()
    assert living_s >= 0.9 * BUSY_S
    assert own.seconds() - before_s >= 0.9 * BUSY_S  # an end gives nothing back


@pytest.mark.parametrize("load", [lambda own: LinuxLoad(Path("/"), 1, own), PsutilLoad])
def test_a_child_of_ours_at_work_does_not_count_among_others(load: Callable[[OwnTime], LinuxLoad]) -> None:
    """Two counters of the same machine, of which one forgets its children."""
    own = OwnTime(iter(range(10)).__next__)
    whole, alone = load(own), load(Alone())
    subprocess.run([sys.executable, "-c", CHILD], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    found, forgetful = whole.contention(), alone.contention()
    if found.others_s is None or forgetful.others_s is None:
        pytest.skip("this kernel does not count processor time")
    assert (forgetful.others_s - found.others_s) * found.processors >= 0.9 * BUSY_S


@pytest.mark.parametrize("content", ["", "garbage", "cpu x y z", "some total=x", "0::", ":::"])
def test_broken_counters_are_none(tmp_path: Path, content: str) -> None:
    names = ("proc/stat", "proc/vmstat", "proc/pressure/cpu", "proc/pressure/memory", "proc/self/cgroup")
    found = LinuxLoad(laid(tmp_path, dict.fromkeys(names, content)), threads=1).contention()
    assert (found.quota_s, found.pressure_s, found.others_s, found.steal_s, found.stall_s) == (None,) * 5


# -- power and energy


def test_sources_of_current(tmp_path: Path) -> None:
    off = {f"{SUPPLY}/AC/online": 0, f"{SUPPLY}/BAT0/status": "Discharging"}
    assert LinuxPower(laid(tmp_path, INTEL_LAPTOP, off)).supply() == Supply(Power.BATTERY, 81.0, draining=True)


def test_a_battery_without_a_line_beside_it(tmp_path: Path) -> None:
    battery = {f"{SUPPLY}/b/type": "Battery", f"{SUPPLY}/b/capacity": 50}
    for status, wanted in (("Full", Power.MAINS), ("Discharging", Power.BATTERY), ("Unknown", Power.UNKNOWN)):
        found = LinuxPower(laid(tmp_path, battery, {f"{SUPPLY}/b/status": status})).supply()
        assert found
        assert found.source is wanted


def test_no_folder_of_supplies_is_unknown(tmp_path: Path) -> None:
    assert LinuxPower(tmp_path).supply() is None


def test_supplies_that_may_not_be_read_are_unknown_and_not_mains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = laid(tmp_path, {f"{SUPPLY}/.keep": ""})
    assert LinuxPower(root).supply() == Supply(Power.MAINS)
    (root / SUPPLY / "BAT0" / "type").mkdir(parents=True)  # there, and no file that says what it is
    assert LinuxPower(root).supply() is None

    def refused(path: Path) -> list[str]:
        raise PermissionError(path)

    monkeypatch.setattr(os, "listdir", refused)
    monkeypatch.setattr(os, "scandir", refused)
    assert folders(root / SUPPLY, "*") == []
    assert LinuxPower(root).supply() is None


def test_a_voltage_that_falls_under_load_spends_nothing(tmp_path: Path) -> None:
    power = LinuxPower(laid(tmp_path, PHONE))
    before = power.battery_joules()
    laid(tmp_path, {f"{SUPPLY}/battery/voltage_now": 3600000})
    assert power.battery_joules() == before
    laid(tmp_path, {f"{SUPPLY}/battery/charge_now": 2999000})
    assert power.battery_joules() == pytest.approx(2.999 * 3.85 * 3600)


def test_what_a_battery_lost_is_energy_and_time_on_mains_is_said(tmp_path: Path) -> None:
    found = sensors(tmp_path, PHONE)
    assert found.sense().energy.joules == 0.0
    assert LinuxPower(tmp_path).battery_joules() == pytest.approx(3.0 * 3.85 * 3600)


RAPL = "sys/class/powercap"


def test_rapl_counts_packages_and_goes_around(tmp_path: Path) -> None:
    zones = {
        f"{RAPL}/intel-rapl:0/name": "package-0",
        f"{RAPL}/intel-rapl:0/energy_uj": 900_000_000,
        f"{RAPL}/intel-rapl:0/max_energy_range_uj": 1_000_000_000,
        f"{RAPL}/intel-rapl:0:0/name": "core",
        f"{RAPL}/intel-rapl:0:0/energy_uj": 5,
    }
    power = LinuxPower(laid(tmp_path, zones))
    assert power.rapl_joules() == 0.0
    laid(tmp_path, {f"{RAPL}/intel-rapl:0/energy_uj": 950_000_000})
    assert power.rapl_joules() == pytest.approx(50)
    laid(tmp_path, {f"{RAPL}/intel-rapl:0/energy_uj": 10_000_000})
    assert power.rapl_joules() == pytest.approx(110)


def test_rapl_that_may_not_be_read_is_no_energy_and_not_zero(tmp_path: Path) -> None:
    root = laid(tmp_path, {f"{RAPL}/intel-rapl:0/name": "package-0"})
    assert LinuxPower(root).rapl_joules() is None
    assert sensors(root).sense().energy.joules is None
