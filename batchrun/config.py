"""Settings of a run: flags, then BATCHRUN_* variables, then batchrun.toml, then built-ins.

Every setting is one field of `Settings`, with its bounds and its words beside it; the three sources are read by the
same rules.  Frozen once resolved: what is derived from settings lives where it is derived.
"""

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import platformdirs

from batchrun.asking import LAYOUTS, Asking
from batchrun.core import Defaults, Sampling
from batchrun.errors import UsageError
from batchrun.forms import clock_time, energy_wh, hours, resources, share

FILE_NAME = "batchrun.toml"
PREFIX = "BATCHRUN_"
OTHER_VARIABLES = ("BATCHRUN_CONFIG",)  # the path of the configuration file


def _setting(
    default: Any,
    words: str,
    least: float | None = None,
    most: float | None = None,
    form: Callable[[str], object] | None = None,
    *,
    or_number: bool = False,
) -> Any:
    """`form`: raises ValueError, saying what was expected, for a text that does not stand for anything."""
    rules = {"words": words, "least": least, "most": most, "form": form, "or_number": or_number}
    return field(default=default, metadata=rules)


@dataclass(frozen=True, slots=True)
class Settings:
    """All that shapes a run.  None leaves a value to the plan made at start; `auto` for a number is None, too."""

    model: str = _setting("smollm2", "a .gguf path, an MLX folder, smollm2, or hf:owner/repository/file.gguf")
    engine: str = _setting("auto", "auto, llamacpp, mlx or fake")
    weights: str = _setting("auto", "auto, as-is, q8_0 or q4_0")
    parallel: int | None = _setting(None, "rows that decode together", 1, 1024)
    context: int | None = _setting(None, "tokens in one slot", 16, 1 << 24)
    batch_tokens: int = _setting(512, "tokens in one forward", 16, 1 << 16)
    threads: int | None = _setting(None, "processor threads", 1, 4096)
    flash: bool | None = _setting(None, "flash attention")
    kv: str = _setting("auto", "auto, f16 or q8_0")
    chain: int = _setting(8, "tokens that free greedy rows draw between two looks (mlx)", 1, 256)
    mlx_cache_mib: int = _setting(512, "freed memory that MLX keeps for reuse", 0, 1 << 24)
    mlx_wired_mib: int | None = _setting(None, "memory that macOS may not page out from under MLX", 0, 1 << 24)
    prefix: bool = _setting(True, "compute shared prefixes once")
    lookup: bool = _setting(True, "try continuations found in the prompt")
    layout: str = _setting("prompt-first", "prompt-first or document-first")
    burst_seconds: float | None = _setting(None, "seconds of work in one burst, or auto", 0.1, 86400)
    rest_seconds: float | None = _setting(None, "seconds of rest between bursts, or auto", 0, 86400)
    duty: float = _setting(1.0, "largest share of time to work", 0.01, 1)
    grace_seconds: float = _setting(10.0, "seconds that running rows get after the first signal", 0, 86400)
    only_on_ac: bool = _setting(False, "stop on battery")
    min_battery: float | None = _setting(None, "stop below this charge while it drains, in percent", 0, 100)
    quiet_hours: str | None = _setting(None, "hours of the day not to run in", form=hours)
    until: str | None = _setting(None, "time of the day to stop at", form=clock_time)
    max_energy: str | None = _setting(None, "energy to stop at", form=energy_wh)
    priority: str = _setting("auto", "auto, normal or low")
    keep_awake: bool = _setting(True, "keep the machine from sleeping while a burst runs")
    max_tokens: int = _setting(512, "longest answer", 1, 2**31 - 1)
    temperature: float = _setting(0.0, "0 is greedy", 0, 100)
    top_p: float = _setting(1.0, "nucleus", 1e-9, 1)
    top_k: int = _setting(0, "0: no limit", 0, 2**31 - 1)
    min_p: float = _setting(0.0, "share of the best token's probability", 0, 1)
    seed: int = _setting(0, "of every draw", 0, 2**63 - 1)
    stop: tuple[str, ...] = _setting((), "strings that end a free-text answer")
    system: str | None = _setting(None, "system turn of jobs that have none")
    schema: str | None = _setting(None, "schema of jobs that name none")
    schema_in_prompt: str = _setting("on", "on or off: whether the model is shown the schema")
    on_budget: str = _setting("close", "close, retry or fail: what becomes of an answer whose budget ends before it")
    retries: int = _setting(1, "tries more for an answer that fails its schema", 0, 100)
    thinking: str = _setting("off", "off, or the tokens a model may think before it answers", or_number=True)
    schemas: str | None = _setting(None, "folder that schema names are looked up in")
    prompt: str | None = _setting(None, "prompt of records that have none; {column} takes a column")
    document: str | None = _setting(None, "document of records that have none; {column} takes a column")
    id_column: str | None = _setting(None, "column that is the id of a record")
    input_format: str | None = _setting(None, "jsonl, csv or tsv; open: by the name of the file")
    root: str | None = _setting(None, "folder that documents and schemas named by job lines must lie in")
    line_bytes: int = _setting(64 << 20, "longest line or document, in bytes", 1, 2**40)
    on_overflow: str = _setting("reject", "of jobs too long for a slot: reject, truncate-middle, truncate-end, chunk")
    overlap_characters: int = _setting(200, "that one piece of a document shares with the next", 0, 10**6)
    reduce_prompt: str | None = _setting(None, "makes one answer of those to the pieces of a document")
    output_format: str = _setting("jsonl", "of the output: jsonl, openai or csv")
    order: str = _setting("completion", "of the output: completion or input")
    max_failures: str | None = _setting(None, "results that are not ok, or a share of them such as 5%, that end a run")
    deadline: str | None = _setting(None, "when a run stops: a span (6h), a time of day (06:00), or a date and time")
    ray: str | None = _setting(None, "a Ray cluster to run on: auto, or an address")
    workers: int | None = _setting(None, "workers on the cluster; open: one a node", 1, 4096)
    worker_resources: str | None = _setting(None, "that each worker takes of its node", form=resources)
    audit: str | None = _setting(None, "share of the results that is run again alone and compared", form=share)
    isolate: bool | None = _setting(None, "run the model in a process of its own; open: all but the fake one")

    def defaults(self) -> Defaults:
        """What job lines that do not say it get."""
        sampling = Sampling(self.temperature, self.top_p, self.top_k, self.min_p, self.seed)
        return Defaults(self.max_tokens, sampling, self.stop, self.system, self.schema)

    def asking(self) -> Asking:
        """How jobs are put to the model."""
        thinking = int(self.thinking) if self.thinking.isdigit() else 0
        closes, grows = self.on_budget != "fail", self.on_budget == "retry"
        return Asking(self.layout, self.schema_in_prompt == "on", closes, grows, thinking)


KV_FORMATS = ("auto", "f16", "q8_0")
WEIGHTS = ("auto", "as-is", "q8_0", "q4_0")
PRIORITIES = ("auto", "normal", "low")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "engine": ("auto", "llamacpp", "mlx", "fake"),
    "weights": WEIGHTS,
    "kv": KV_FORMATS,
    "layout": LAYOUTS,
    "schema_in_prompt": ("on", "off"),
    "on_budget": ("close", "retry", "fail"),
    "input_format": ("jsonl", "csv", "tsv"),
    "on_overflow": ("reject", "truncate-middle", "truncate-end", "chunk"),
    "output_format": ("jsonl", "openai", "csv"),
    "order": ("completion", "input"),
    "priority": PRIORITIES,
}
MOST_THINKING_TOKENS = 1 << 20
AUTO = "auto"
AUTO_NUMBERS = ("burst_seconds", "rest_seconds")


def resolve(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> Settings:
    """The settings of a run.  `flags`: those given, by setting name.  Raises UsageError with the nearest known name."""
    return traced(flags, environment, file).settings


@dataclass(frozen=True, slots=True)
class Traced:
    """Settings, and where each came from that is not built in: a flag, a variable, or the path of a file."""

    settings: Settings
    origins: Mapping[str, str]


def traced(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> Traced:
    """The same as `resolve`, with the origin of each value."""
    path = file or found_file(environment)
    values = _from_file(path) if path else {}
    origins = dict.fromkeys(values, str(path))
    told = _from_environment(environment)
    values |= told
    origins |= {name: f"{PREFIX}{name.upper()}" for name in told}
    for name, value in flags.items():
        if value is not None:
            origins[name] = f"--{name.replace('_', '-')}"
            values[name] = _checked(name, value, origins[name])
    return Traced(_settings(values), origins)


def _settings(values: Mapping[str, Any]) -> Settings:
    """Raises UsageError for a word that is no choice, and for values that do not go together."""
    settings = Settings(**values)
    for name, known in CHOICES.items():
        value = getattr(settings, name)
        if value is not None and value not in known:
            raise UsageError(f"{name} {value!r} is unknown; expected {_one_of(known)}")
    thinking = settings.thinking
    if thinking != "off" and not (thinking.isdecimal() and 1 <= int(thinking) <= MOST_THINKING_TOKENS):
        raise UsageError(f"thinking {thinking!r} is unknown; expected off, or a number of tokens of at least 1")
    if settings.kv == "q8_0" and settings.flash is False:
        raise UsageError("kv q8_0 needs flash attention; expected --kv f16, or no --no-flash")
    return settings


def found_file(environment: Mapping[str, str]) -> Path | None:
    """The configuration file that nobody gave by a flag."""
    named = environment.get("BATCHRUN_CONFIG")
    if named:
        return Path(named)
    places = (Path(FILE_NAME), platformdirs.user_config_path("batchrun") / FILE_NAME)
    return next((path for path in places if _is_readable(path)), None)


def _is_readable(path: Path) -> bool:
    """Whether a file that nobody named is there for us; in a folder that we may not search it is not."""
    try:
        return path.is_file()
    except OSError:
        return False


def _from_file(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.expanduser().read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (ValueError, RuntimeError) as error:  # RuntimeError: nested without end, or the home of nobody
        raise UsageError(f"{path} is not TOML: {error}") from error
    values = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        _check_known(name, f"{path}: {key}")
        values[name] = _checked(name, value, f"{path}: {key}")
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for variable, text in environment.items():
        if text and variable.startswith(PREFIX) and variable not in OTHER_VARIABLES:  # empty is as good as unset
            name = variable.removeprefix(PREFIX).lower()
            _check_known(name, variable)
            values[name] = _checked(name, _parsed(name, text), variable)
    return values


def _parsed(name: str, text: str) -> Any:
    """The value that a variable's text stands for; text that stands for none is left for the check to refuse.

    A list of stop strings is written as JSON; `[END]`, which is none, is one stop string.
    """
    kind = _kind(name)
    if kind is str:
        return text
    if kind is bool:
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(text.lower(), text)
    try:
        if kind is tuple:
            return json.loads(text) if text.startswith("[") else [text]
        return kind(text)
    except (ValueError, RecursionError):
        return text


def _checked(name: str, value: Any, where: str) -> Any:
    """A value of the setting's kind and within its bounds."""
    kind = _kind(name)
    rule = next(f for f in fields(Settings) if f.name == name).metadata
    if rule["or_number"] and type(value) is int:
        value = str(value)
    if name in AUTO_NUMBERS and value == AUTO:
        return None
    if kind is tuple:
        value = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else value
        good = isinstance(value, tuple) and all(isinstance(text, str) and text for text in value)
    else:
        good = isinstance(value, int | float if kind is float else kind) and isinstance(value, bool) == (kind is bool)
    good = good and all(_is_unicode(text) for text in (value if kind is tuple else [value]) if isinstance(text, str))
    least, most = rule["least"], rule["most"]
    if not good or (least is not None and not least <= value <= most):
        bounds = f" from {least} to {most}" if least is not None else ""
        raise UsageError(f"{where} is {value!r}; expected {_words(kind)}{bounds} ({rule['words']})")
    if rule["form"]:
        try:
            rule["form"](value)
        except ValueError as error:
            raise UsageError(f"{where} is {value!r}; expected {error} ({rule['words']})") from error
    return float(value) if kind is float else value


def _is_unicode(text: str) -> bool:
    """Not so where the bytes of an argument or a variable were no UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _check_known(name: str, where: str) -> None:
    known = [f.name for f in fields(Settings)]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        raise UsageError(
            f"{where} is no setting; " + (f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}")
        )


def _kind(name: str) -> type:
    """The type of a setting, without the None that leaves it open."""
    hint = get_type_hints(Settings)[name]
    options = [option for option in get_args(hint) if option is not NoneType] if isinstance(hint, UnionType) else [hint]
    kind = options[0]
    return tuple if getattr(kind, "__origin__", None) is tuple else kind


def _words(kind: type) -> str:
    return {str: "text", int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "a list of texts")


def _one_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
