"""Where schemas come from: a file in a schemas folder, a path, or the job line itself."""

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchrun.confinement import Outside, resolved_below
from batchrun.core import Problem, Schema
from batchrun.errors import JobError
from batchrun.line import Origin
from batchrun.schema_files import Bundle
from batchrun.schemas import MOST_BYTES, check_size, checked, compact, named


class SchemaFolders:
    """Where the schema names of a job file are looked up: `folders` for names, `bases` for relative paths."""

    def __init__(self, folders: Sequence[Path], bases: Sequence[Path]) -> None:
        self._folders = folders
        self._bases = bases
        self._by_name: dict[tuple[str | Path, ...], Schema] = {}

    def load(self, value: Any, origin: Origin | None = None) -> Schema:
        """The schema that a job names or holds.  Raises JobError: unknown, unreadable, or no valid schema.

        `origin`: of a line that names it, whose files must lie below its root or in one of the folders.  None: the user
        names it, and any file will do.
        """
        if not isinstance(value, str):
            return self._checked("inline", value, None)
        key = (value, *((origin.base, origin.root) if origin else ()))
        if key not in self._by_name:
            self._by_name[key] = self._read(value, origin)
        return self._by_name[key]

    def _read(self, name: str, origin: Origin | None) -> Schema:
        path = self._find(name, origin)
        try:
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
            check_size(name, len(data))
            return self._checked(name, json.loads(data.decode("utf-8-sig")), path)
        except OSError as error:
            raise JobError(Problem("schema_unreadable", f"schema {name!r}: {error.strerror}")) from error
        except (ValueError, RecursionError) as error:
            raise JobError(Problem("schema_invalid", f"schema {name!r} is not JSON: {error}")) from error

    def _checked(self, name: str, value: Any, path: Path | None) -> Schema:
        """The schema itself first, then with the files it refers to, which are checked along with it."""
        schema = checked(name, compact(name, value))
        return checked(name, compact(name, Bundle(name, schema.content, path, self._folders).whole()))

    def _find(self, name: str, origin: Origin | None) -> Path:
        is_path = "/" in name or name.endswith(".json")
        bases = (*self._bases, origin.base) if origin else self._bases
        by_path = [place / name for place in (*bases, *self._folders)]
        places = by_path if is_path else [folder / f"{name}.json" for folder in self._folders]
        for path in places:
            try:
                if path.is_file():
                    return resolved_below(path, origin.root, *self._folders) if origin else path
            except Outside:
                message = f"schema {named(name)} lies outside of {named(str(origin and origin.root))}; see --root"
                raise JobError(Problem("schema_unreadable", message)) from None
            except OSError as error:
                raise JobError(Problem("schema_unreadable", f"schema {named(name)}: {error.strerror}")) from error
        known = sorted({file.stem for folder in self._folders if folder.is_dir() for file in folder.glob("*.json")})
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known[:10]) or 'none'}"
        raise JobError(Problem("schema_unknown", f"schema {named(name)} not found{'' if is_path else hint}"))
