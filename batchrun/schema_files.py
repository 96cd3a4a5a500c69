"""References between the files of a schemas folder: what a schema refers to is put into it when it is loaded.

One document then holds all there is: it is what the digest covers, what stands in the prompt, and what references are
resolved in.  Files are looked for beside the one that refers to them and in the schemas folders, never outside of these
and never over a network.  A reference may name a file, or the `$id` that a file gives itself.  One that leads nowhere
is left as it is: it is refused where an answer would need it.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

from batchrun.core import Problem
from batchrun.errors import JobError
from batchrun.grammar_subschema import escaped
from batchrun.references import NotFound, Scope, root_scope

MOST_FILES = 64
MOST_BYTES = 4 << 20
MOST_INDEXED = 512
VALUES = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose objects are no schemas."""


class Bundle:
    """A schema and the files that it refers to.  `path`: its own file, if any; `folders`: where files may lie."""

    def __init__(self, name: str, content: Any, path: Path | None, folders: Sequence[Path]) -> None:
        self._name = name
        self._content = content
        self._path = path.resolve() if path else None
        homes = ([path.parent] if path else []) + list(folders)
        self._folders = [folder.resolve() for folder in homes if folder.is_dir()]
        self._files: dict[str, Path] = {}  # by the URI that they are known under
        self._bytes = 0
        self._nowhere: set[str] = set()

    def whole(self) -> Any:
        """The schema with all files in it.  Raises JobError, with the place, where a file cannot be read."""
        while missing := self._missing():
            self._take_in(*missing)
        return self._content

    def _missing(self) -> tuple[str, str, Path | None] | None:
        """The first reference that leads to another file: its place, where it leads, and the file that it stands in."""
        if not isinstance(self._content, dict):
            return None
        for place, reference, scope, holder in self._references(
            self._content, root_scope(self._content), "", self._path
        ):
            if not reference.startswith("#") and reference not in self._nowhere:
                try:
                    scope.lookup(reference)
                except NotFound:
                    return place, reference, holder
        return None

    def _references(
        self, value: Any, scope: Scope, place: str, holder: Path | None
    ) -> Iterator[tuple[str, str, Scope, Path | None]]:
        if isinstance(value, list):
            for number, part in enumerate(value):
                yield from self._references(part, scope, f"{place}/{number}", holder)
        elif isinstance(value, dict):
            inner, reference = scope.enter(value), value.get("$ref")
            holder = self._files.get(str(value.get("$id", value.get("id"))), holder)
            if isinstance(reference, str):
                yield f"{place}/$ref", reference, inner, holder
            for key, part in value.items():
                if key not in VALUES:
                    yield from self._references(part, inner, f"{place}/{escaped(key)}", holder)

    def _take_in(self, place: str, reference: str, holder: Path | None) -> None:
        uri = urldefrag(reference).url
        path = self._by_id(uri) if "://" in uri else self._by_name(unquote(uri), holder)
        if path is None:
            self._nowhere.add(reference)
            return
        if path == self._path:
            self._content = {"$id": uri, **self._content}
            return
        content = self._read(path, place)
        self._files[uri] = path
        if isinstance(content, dict):
            scope = root_scope(dict(self._drafts(content)))
            content = {**content, scope.id_keyword: uri}
        holds = "definitions" if root_scope(self._content).reference_alone else "$defs"
        self._content = {**self._content, holds: {**self._content.get(holds, {}), uri: content}}

    def _drafts(self, content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """The draft of a file: its own, or that of the schema which refers to it."""
        for holder in (self._content, content):
            if "$schema" in holder:
                yield "$schema", holder["$schema"]

    def _by_name(self, name: str, holder: Path | None) -> Path | None:
        for folder in ([holder.parent] if holder else []) + self._folders:
            path = (folder / name).resolve()
            if any(path.is_relative_to(home) for home in self._folders) and path.is_file():
                return path
        return None

    def _by_id(self, uri: str) -> Path | None:
        """The file that gives itself a name."""
        files = [path for folder in self._folders for path in sorted(folder.glob("**/*.json"))][:MOST_INDEXED]
        for path in files:
            try:
                content = json.loads(path.read_text(encoding="utf-8-sig"))
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(content, dict) and urldefrag(str(content.get("$id", content.get("id", "")))).url == uri:
                return path
        return None

    def _read(self, path: Path, place: str) -> Any:
        try:
            text = path.read_text(encoding="utf-8-sig")
            self._bytes += len(text)
            if len(self._files) >= MOST_FILES or self._bytes > MOST_BYTES:
                limits = f"more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB"
                raise JobError(Problem("schema_invalid", f"schema {self._name!r} refers to {limits}", path=place))
            return json.loads(text)
        except (OSError, ValueError, RecursionError) as error:
            message = f"schema {self._name!r} refers to {path.name} at {place}, which is no readable JSON: {error}"
            raise JobError(Problem("schema_invalid", message, path=place)) from error
