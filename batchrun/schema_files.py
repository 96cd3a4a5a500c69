"""References between the files of a schemas folder: what a schema refers to is put into it when it is loaded.

One document then holds all there is: it is what the digest covers, what stands in the prompt, and what references are
resolved in.  Files are looked for beside the one that refers to them and in the schemas folders, never outside of these
and never over a network.  A reference may name a file, or the `$id` that a file gives itself.

Every file is taken in once, under a URI of its own, and references to it are rewritten to lead there: what was relative
to a folder cannot be meant otherwise in the document.  A reference that leads nowhere is left as it is: it is refused
where an answer would need it.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

from batchrun.core import Problem
from batchrun.errors import JobError
from batchrun.keywords import HOLDERS
from batchrun.references import ROOT, NotFound, Scope, root_scope
from batchrun.schema_walk import pointer, rebuilt
from batchrun.schemas import MOST_BYTES, MOST_NESTED, is_too_deep, kind_of

MOST_FILES = 64
MOST_INDEXED = 512
REFERENCES = ("$ref", "$dynamicRef")
PREFIX = "urn:batchrun:"
"""Of the URIs of files that give themselves no absolute one."""


class Bundle:
    """A schema and the files that it refers to.  `path`: its own file, if any; `folders`: where files may lie."""

    def __init__(self, name: str, content: Any, path: Path | None, folders: Sequence[Path]) -> None:
        self._name = name
        self._content = content
        self._path = path.resolve() if path else None
        homes = ([path.parent] if path else []) + list(folders)
        self._folders = [folder.resolve() for folder in homes if folder.is_dir()]
        self._scope = root_scope(content)
        self._uris: dict[Path, str] = {}  # under which files stand in the document
        if self._path:
            self._uris[self._path] = _own_uri(content, self._scope) or ROOT
        self._waiting: list[tuple[Path, dict[str, Any]]] = []  # taken in, but not what they refer to
        self._bytes = 0

    def whole(self) -> Any:
        """The schema with all files in it.  Raises JobError, with the place, where a file cannot be read."""
        holder = "definitions" if self._scope.reference_alone else "$defs"
        content = self._led(self._content, self._scope, "", "", self._path)
        held = {}
        while self._waiting:
            path, file = self._waiting.pop()
            uri = self._uris[path]
            held[uri] = self._led(file, root_scope(file, self._scope.draft), uri, pointer((holder, uri)), path)
        return {**content, holder: {**content.get(holder, {}), **held}} if held else content

    def _led(self, part: Any, scope: Scope, base: str, place: str, path: Path | None) -> Any:
        """A part of a file, its references to other files rewritten.  `base`: what they are relative to."""
        if not isinstance(part, dict):
            return part
        inner = scope.enter(part)
        base = _joined(base, part.get(inner.id_keyword)) or base
        out = rebuilt(part, lambda at, held: self._led(held, inner, base, place + pointer(at), path))
        for name in REFERENCES:
            if isinstance(out.get(name), str):
                out[name] = self._leading(out[name], inner, base, f"{place}/{name}", path)
        return out

    def _leading(self, reference: str, scope: Scope, base: str, place: str, holder: Path | None) -> str:
        """The reference that leads in the whole document where this one leads in its file."""
        if reference.startswith("#"):
            return reference
        try:
            scope.lookup(reference)
            return reference
        except NotFound:
            path = self._found(reference, base, holder)
        if path is None:
            return reference
        if path not in self._uris:
            self._take_in(path, place)
        fragment = urldefrag(reference).fragment
        return f"{self._uris[path]}#{fragment}" if fragment else self._uris[path]

    def _found(self, reference: str, base: str, holder: Path | None) -> Path | None:
        """The file that a reference names."""
        target = _joined(base, reference)
        if target is None:
            return None
        names = [urldefrag(text).url for text in (target, reference)]
        relative = next((name for name in names if not urlsplit(name).scheme), None)
        path = None if relative is None else self._by_name(unquote(relative), holder)
        return path or (self._by_id.get(names[0]) if urlsplit(names[0]).scheme else None)

    def _by_name(self, name: str, holder: Path | None) -> Path | None:
        for folder in ([holder.parent] if holder else []) + self._folders:
            try:
                path = (folder / name).resolve()
                if self._is_inside(path) and path.is_file():
                    return path
            except (OSError, ValueError):  # no name that a file can have
                return None
        return None

    @cached_property
    def _by_id(self) -> dict[str, Path]:
        """The files that give themselves a name."""
        found: dict[str, Path] = {}
        files = [path.resolve() for folder in self._folders for path in sorted(folder.glob("**/*.json"))]
        for path in files[:MOST_INDEXED]:
            try:
                content = _json(path) if self._is_inside(path) and path.is_file() else None
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(content, dict):
                found.setdefault(urldefrag(str(content.get("$id", content.get("id", "")))).url, path)
        return found

    def _is_inside(self, path: Path) -> bool:
        return any(path.is_relative_to(home) for home in self._folders)

    def _take_in(self, path: Path, place: str) -> None:
        content = self._read(path, place)
        if not isinstance(content, dict | bool):
            raise self._refused(path, place, f"{kind_of(content)}; expected an object")
        content = {False: {"not": {}}, True: {}}[content] if isinstance(content, bool) else content
        scope = root_scope({name: content[name] for name in ("$schema",) if name in content}, self._scope.draft)
        uri = _own_uri(content, scope)
        if uri is None or uri in self._uris.values() or self._is_known(uri):
            uri = self._new_uri(path)
        self._uris[path] = uri
        self._waiting.append((path, {**_open_to_ids(content, scope), scope.id_keyword: uri}))

    def _is_known(self, uri: str) -> bool:
        try:
            self._scope.lookup(uri)
        except NotFound:
            return False
        return True

    def _new_uri(self, path: Path) -> str:
        home = next(folder for folder in self._folders if path.is_relative_to(folder))
        uri = PREFIX + quote(path.relative_to(home).as_posix())
        taken = {ROOT, *self._uris.values()}
        others = (f"{uri}-{number}" for number in range(2, len(taken) + 2))
        return next(name for name in (uri, *others) if name not in taken)

    def _read(self, path: Path, place: str) -> Any:
        try:
            content = _json(path)
            self._bytes += path.stat().st_size
        except (OSError, ValueError, RecursionError) as error:
            raise self._refused(path, place, f"no readable JSON: {error}") from error
        if len(self._uris) > MOST_FILES or self._bytes > MOST_BYTES:
            limits = f"more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB"
            raise JobError(Problem("schema_invalid", f"schema {self._name!r} refers to {limits}", path=place))
        if is_too_deep(content):
            raise self._refused(path, place, f"nested more than {MOST_NESTED} levels deep")
        return content

    def _refused(self, path: Path, place: str, reason: str) -> JobError:
        message = f"schema {self._name!r} refers to {path.name} at {place}, which is {reason}"
        return JobError(Problem("schema_invalid", message, path=place))


def _json(path: Path) -> Any:
    """Raises OSError, ValueError, RecursionError."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is over {MOST_BYTES} bytes")
    return json.loads(data.decode("utf-8-sig"))


def _own_uri(content: Any, scope: Scope) -> str | None:
    """The absolute URI that a schema gives itself."""
    own = content.get(scope.id_keyword) if isinstance(content, dict) else None
    try:
        uri = urldefrag(own).url if isinstance(own, str) else ""
        return uri if urlsplit(uri).scheme else None
    except ValueError:
        return None


def _joined(base: str, reference: Any) -> str | None:
    """A reference from a base; None where it is none."""
    try:
        return urljoin(base, reference) if isinstance(reference, str) else None
    except ValueError:
        return None


def _open_to_ids(content: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """Up to draft 7 nothing counts beside a `$ref`, an `$id` neither: there the reference becomes a part of its own."""
    if not scope.reference_alone or "$ref" not in content or "allOf" not in scope.asserting:
        return content
    kept = {name: value for name, value in content.items() if name in HOLDERS or name == "$schema"}
    return {**kept, "allOf": [{"$ref": content["$ref"]}]}
