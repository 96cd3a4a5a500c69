"""What a shell may offer for a value that is half typed.  Looks at names only, and loads no model library."""

from collections.abc import Callable
from pathlib import Path

MOST = 200  # files offered


def choices(setting: str) -> Callable[[str], list[str]]:
    """The words that a setting knows."""

    def offered(incomplete: str) -> list[str]:
        from batchrun.config import CHOICES

        return [word for word in CHOICES[setting] if word.startswith(incomplete)]

    return offered


def models(incomplete: str) -> list[str]:
    """The embedded model, GGUF files, and folders on the way to one."""
    from batchrun.models import EMBEDDED

    return [name for name in (EMBEDDED,) if name.startswith(incomplete)] + files(".gguf")(incomplete)


def schemas(incomplete: str) -> list[str]:
    """Names of the schemas here."""
    names = sorted(path.stem for path in Path("schemas").glob("*.json"))
    return [name for name in names if name.startswith(incomplete)][:MOST]


def files(*endings: str) -> Callable[[str], list[str]]:
    """Files with one of these endings, or all, and folders that may hold them."""

    def offered(incomplete: str) -> list[str]:
        folder, _, begun = incomplete.rpartition("/")
        shown = f"{folder}/" if "/" in incomplete else ""
        try:
            entries = sorted(Path(shown or ".").expanduser().iterdir())
        except OSError:
            return []
        found = [
            f"{shown}{entry.name}{'/' if entry.is_dir() else ''}"
            for entry in entries
            if entry.name.startswith(begun) and (begun.startswith(".") or not entry.name.startswith("."))
            if entry.is_dir() or not endings or entry.name.endswith(endings)
        ]
        return found[:MOST]

    return offered
