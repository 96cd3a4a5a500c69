"""Which of a repository's files make a model.  Pure: names in, names out."""

import difflib
import fnmatch
import re
from collections.abc import Mapping

from batchrun.byte_counts import file_size
from batchrun.errors import ModelError
from batchrun.models import FOLDER_FILES, HUB

NAMES_SHOWN = 12
_SHARD = re.compile(r"(.+-)(\d{5})(-of-)(\d{5})(\.gguf)")


def shards(file: str) -> list[str]:
    """A file, or all parts of the GGUF that it is the first part of: `x-00001-of-00003.gguf`."""
    found = _SHARD.fullmatch(file)
    if found is None or int(found[2]) != 1:
        return [file]
    return [f"{found[1]}{number:05}{found[3]}{found[4]}{found[5]}" for number in range(1, int(found[4]) + 1)]


def is_later_shard(file: str) -> bool:
    found = _SHARD.fullmatch(file)
    return found is not None and int(found[2]) != 1


def ggufs(files: Mapping[str, int | None]) -> list[str]:
    """The GGUF files that a model can start from: no projectors, no later parts."""
    names = (file for file in files if file.endswith(".gguf") and not is_later_shard(file))
    return sorted(file for file in names if not file.rpartition("/")[2].startswith("mmproj"))


def wanted(name: str, files: Mapping[str, int | None]) -> list[str]:
    """The files of an MLX folder.  Raises ModelError where a repository holds none, with what it holds."""
    names = [file for file in sorted(files) if any(fnmatch.fnmatchcase(file, each) for each in FOLDER_FILES)]
    names = [file for file in names if "/" not in file]
    if "config.json" in names and any(file.endswith(".safetensors") for file in names):
        return names
    if found := ggufs(files):
        shown = ", ".join(f"{HUB}{name.removeprefix(HUB)}/{file}{_size(files[file])}" for file in found[:NAMES_SHOWN])
        raise ModelError(f"{name} holds GGUF files; name one of them: {shown}{_more(len(found))}")
    raise ModelError(f"{name} holds neither a GGUF file nor safetensors; expected a model that generates text")


def nearest(file: str, files: Mapping[str, int | None]) -> str:
    """A hint for a file that is not there."""
    found = ggufs(files)
    near = difflib.get_close_matches(file, found, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    return f"it has: {', '.join(found[:NAMES_SHOWN])}{_more(len(found))}" if found else "it has no GGUF file"


def _size(size: int | None) -> str:
    return "" if size is None else f" ({file_size(size)})"


def _more(count: int) -> str:
    return f" and {count - NAMES_SHOWN} more" if count > NAMES_SHOWN else ""
