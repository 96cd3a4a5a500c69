"""The models that are on this machine already: embedded, in the hub's cache, in folders, and copies of batchrun's own.

No model is opened: what a file is called, its first four bytes and its size have to do; `models info` says the rest.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from batchrun.catalogue.folder_files import is_later_shard, shards
from batchrun.errors import ModelError, UsageError
from batchrun.models import EMBEDDED, HUB, cache_folder, is_gguf, is_mlx_folder, locate

DEEPEST = 4
USUAL = (".", "models", "~/models", "~/.lmstudio/models", "~/.cache/llama.cpp", "~/Library/Caches/llama.cpp")
"""Where people and other programs keep GGUF files."""
SHALLOW = frozenset({"."})


@dataclass(frozen=True, slots=True)
class Found:
    """A model.  `name`: for `--model`; `kind`: GGUF or MLX; `place`: embedded, hub cache, copies, or a folder."""

    name: str
    kind: str
    size_bytes: int
    place: str
    path: Path


def found(folders: Sequence[Path]) -> list[Found]:
    """All models of this machine, and those in folders, each path once.  Raises UsageError for a folder that is none.

    `folders`: None given, the usual ones are looked through.  What cannot be read is passed over in those that were
    given, too, save the folders themselves.
    """
    for folder in folders:
        _check(folder)
    listed = [*_embedded(), *_in_hub_cache()]
    for folder in folders:
        listed += in_folder(folder, DEEPEST)
    for place in () if folders else USUAL:
        with contextlib.suppress(RuntimeError):  # there is no home
            listed += in_folder(Path(place).expanduser(), 0 if place in SHALLOW else DEEPEST)
    listed += (copy for copy in in_folder(cache_folder(), 0, "copies") if copy.kind == "GGUF")
    by_path: dict[str, Found] = {}
    for each in listed:
        by_path.setdefault(os.path.realpath(each.path), each)
    return list(by_path.values())


def _check(folder: Path) -> None:
    """Raises UsageError where nothing can be looked for."""
    try:
        os.scandir(folder).close()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{folder} is no folder; expected one that holds models") from error
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; expected a folder that holds models") from error


def in_folder(folder: Path, depth: int, place: str = "") -> Iterator[Found]:
    """GGUF files and MLX folders in a folder and `depth` levels below it; links to folders and hidden ones are left."""
    for here, folders, names in os.walk(folder):
        at = Path(here)
        deeper = len(at.relative_to(folder).parts) < depth
        folders[:] = sorted(name for name in folders if deeper and not name.startswith("."))
        for name in sorted(names):
            path = at / name
            if not os.path.isfile(path):  # such as a link that leads nowhere
                continue
            if _may_be_gguf(name) and is_gguf(path):
                yield Found(str(path), "GGUF", _size([at / each for each in shards(name)]), place or str(folder), path)
        yield from (_mlx(at / name, place or str(folder)) for name in folders if is_mlx_folder(at / name))
    if not depth:  # folders right here were not entered, but may be models
        below = sorted(entry for entry in _entries(folder) if is_mlx_folder(entry))
        yield from (_mlx(path, place or str(folder)) for path in below)


def _may_be_gguf(name: str) -> bool:
    return name.endswith(".gguf") and not name.startswith("mmproj") and not is_later_shard(name)


def _entries(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return []


def _mlx(path: Path, place: str, name: str = "") -> Found:
    return Found(name or str(path), "MLX", _size(list(path.glob("model*.safetensors"))), place, path)


def _embedded() -> Iterator[Found]:
    try:
        path = locate(EMBEDDED)
    except ModelError:
        return
    yield Found(EMBEDDED, "GGUF", _size([path]), "embedded", path)


def _in_hub_cache() -> Iterator[Found]:
    """What `hf:` names lead to: the files of the revision that `main` stands for here."""
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except (CacheNotFound, OSError, ValueError, RuntimeError):  # RuntimeError: there is no home
        return
    models = (repository for repository in cache.repos if repository.repo_type == "model")
    for repository in sorted(models, key=lambda each: each.repo_id):
        name = f"{HUB}{repository.repo_id}"
        for revision in repository.revisions:
            if "main" not in revision.refs:
                continue
            folder = revision.snapshot_path
            if is_mlx_folder(folder):
                yield _mlx(folder, "hub cache", name)
            for each in in_folder(folder, DEEPEST, "hub cache"):
                if each.kind == "GGUF":
                    yield replace(each, name=f"{name}/{each.path.relative_to(folder)}")


def _size(paths: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in paths if os.path.isfile(path))
