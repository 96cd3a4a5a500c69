"""Formats of strings as the guide spells them: which the grammar engine knows, and patterns for those it does not.

A pattern stands here where the engine's own format lets more or less through than the validator does: it writes
29 February in any year and a second 60, which no calendar has.
"""

_HOUR, _SIXTY = "([01][0-9]|2[0-3])", "[0-5][0-9]"
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_FOURTH = "(0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = f"([0-9]{{2}}{_FOURTH}|{_FOURTH}00)"
_DAY = "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
_DATE = f"({_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
_TIME = rf"{_HOUR}:{_SIXTY}:{_SIXTY}(\.[0-9]+)?([Zz]|[+-]{_HOUR}:{_SIXTY})"
_POINTER = "(/([^/~]|~[01])*)*"

FORMAT_PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[Tt]{_TIME}$",
    "json-pointer": f"^{_POINTER}$",
    "relative-json-pointer": f"^(0|[1-9][0-9]*)(#|{_POINTER})$",
    "uri-reference": r"^[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*$",
}
"""Anchored patterns, as schemas write them."""

ONLY_NEARLY = frozenset({"uri-reference"})
"""Formats whose pattern lets more through than the validator."""

ENGINE_FORMATS = {
    "email": "a@a.aa",
    "hostname": "a",
    "ipv4": "0.0.0.0",
    "ipv6": "::",
    "uri": "a:",
    "uuid": "00000000-0000-1000-8000-000000000000",
    "duration": "P0D",
}
"""Formats that the engine knows by name, each with a short text that has it."""

LATE_FORMATS = {"iri": "a:", "idn-email": "a@a.aa", "idn-hostname": "a"}
"""Formats that are left to the check, each with a short text that has it; the others have the empty one."""
