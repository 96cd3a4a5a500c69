"""What a shell may offer for a value that is half typed.  Looks at names and first bytes only, and loads no
model library.

Where nothing is offered the shell goes on with files, as it does for all options that take a path.
"""

from collections.abc import Callable
from pathlib import Path


def choices(setting: str) -> Callable[[str], list[str]]:
    """The words that a setting knows."""

    def offered(incomplete: str) -> list[str]:
        from batchrun.config import CHOICES

        return [word for word in CHOICES[setting] if word.startswith(incomplete)]

    return offered


def models(incomplete: str) -> list[str]:
    """The embedded model, and the GGUF files of this folder."""
    from batchrun.models import EMBEDDED, is_gguf

    found = sorted(path.name for path in Path().glob("*.gguf") if path.name.startswith(incomplete) and is_gguf(path))
    return [*([EMBEDDED] if EMBEDDED.startswith(incomplete) else []), *found]


def schemas(incomplete: str) -> list[str]:
    """Names of the schemas here."""
    names = sorted(path.stem for path in Path("schemas").glob("*.json"))
    return [name for name in names if name.startswith(incomplete)]
