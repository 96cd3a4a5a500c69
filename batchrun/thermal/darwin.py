"""Thermal pressure on macOS, from two sources that need no root.

First the Darwin notification `com.apple.system.thermalpressurelevel`, whose state is one of five levels; then
`NSProcessInfo.thermalState`, which has four and is slower to tell.  Sources: notify(3), OSThermalNotification.h,
Apple's documentation of NSProcessInfo.  Nothing here has run on a Mac; the tests bring a library of their own.
"""

import ctypes
from typing import Any

from batchrun.heat import Level, Reading

NOTIFICATION = b"com.apple.system.thermalpressurelevel"
PRESSURES = {0: Level.COOL, 1: Level.WARM, 2: Level.HOT, 3: Level.CRITICAL, 4: Level.CRITICAL}
PRESSURE_NAMES = ("nominal", "moderate", "heavy", "trapping", "sleeping")
STATES = {0: Level.COOL, 1: Level.WARM, 2: Level.HOT, 3: Level.CRITICAL}
STATE_NAMES = ("nominal", "fair", "serious", "critical")


class Darwin:
    """`system`: libSystem; `objective_c`: libobjc with Foundation loaded, or None."""

    def __init__(self, system: Any, objective_c: Any = None) -> None:
        self._system = system
        self._objective_c = objective_c
        self._token = ctypes.c_int(-1)
        self._registered = system.notify_register_check(NOTIFICATION, ctypes.byref(self._token)) == 0

    def readings(self, elapsed_s: float) -> tuple[Reading, ...]:
        return (self._pressure(), *([self._state()] if self._objective_c else []))

    def _pressure(self) -> Reading:
        state = ctypes.c_uint64(0)
        if not self._registered or self._system.notify_get_state(self._token, ctypes.byref(state)) != 0:
            return Reading("thermal pressure", Level.UNKNOWN, note="no notification")
        return _reading("thermal pressure", state.value, PRESSURES, PRESSURE_NAMES)

    def _state(self) -> Reading:
        send = self._objective_c.objc_msgSend
        info = send(
            self._objective_c.objc_getClass(b"NSProcessInfo"), self._objective_c.sel_registerName(b"processInfo")
        )
        if not info:
            return Reading("process info", Level.UNKNOWN, note="no NSProcessInfo")
        state = send(info, self._objective_c.sel_registerName(b"thermalState"))
        return _reading("process info", int(state or 0), STATES, STATE_NAMES)


def open_darwin() -> Darwin:
    """The real libraries.  Raises OSError where they cannot be loaded."""
    system = ctypes.CDLL("/usr/lib/libSystem.B.dylib")
    ctypes.CDLL("/System/Library/Frameworks/Foundation.framework/Foundation")
    objective_c = ctypes.CDLL("/usr/lib/libobjc.A.dylib")
    for name in ("objc_getClass", "sel_registerName", "objc_msgSend"):
        getattr(objective_c, name).restype = ctypes.c_void_p
    objective_c.objc_getClass.argtypes = objective_c.sel_registerName.argtypes = [ctypes.c_char_p]
    objective_c.objc_msgSend.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return Darwin(system, objective_c)


def _reading(source: str, state: int, levels: dict[int, Level], names: tuple[str, ...]) -> Reading:
    """A state beyond those that are documented is unknown, not cool."""
    note = names[state] if state < len(names) else f"state {state}"
    return Reading(source, levels.get(state, Level.UNKNOWN), note=note)
