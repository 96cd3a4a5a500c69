"""Fetches models from the Hugging Face hub into its local cache.

The hub's library downloads, retries and places files; what it lacks is added here: a download that was stopped goes on
where it was, also in another process, and what came is compared with the checksum that the hub gives for it.  The name
of a file in the cache is that checksum, so a file that is there already is looked at again, too.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from batchrun.byte_counts import file_size
from batchrun.catalogue.folder_files import nearest, shards, wanted
from batchrun.errors import ModelError
from batchrun.models import HUB, hub_name, locate
from batchrun.printable import without_credentials

FAILURES = cast(tuple[type[Exception], ...], HfHubHTTPError.__bases__)
"""The HTTP library's own errors, whichever library it is in this version, and OSError."""

CARD = "README.md"
UNFINISHED = ".batchrun.incomplete"
READ_BYTES = 1 << 20
SPARE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Remote:
    """A file on the hub.  `etag`: its SHA-256 where it is large, else git's hash of it."""

    repository: str
    file: str
    url: str
    etag: str
    size: int | None

    @property
    def blob(self) -> Path:
        """Its place in the cache, as the hub's documentation lays it out."""
        folder = repo_folder_name(repo_id=self.repository, repo_type="model")
        return Path(constants.HF_HUB_CACHE) / folder / "blobs" / self.etag

    @property
    def partial(self) -> Path:
        return self.blob.with_name(f"{self.etag}{UNFINISHED}")


@dataclass(frozen=True, slots=True)
class Pulled:
    """What is here now.  `path`: what `--model` leads to; `checked`: whether the hub gave checksums to compare."""

    path: Path
    files: int
    size_bytes: int
    checked: bool


def pull(name: str, say: Callable[[str], None]) -> Pulled:
    """Fetches the file, or the MLX folder, that `hf:owner/repository[/file]` names.  Raises ModelError."""
    if not name.startswith(HUB):
        raise ModelError(f"{name} is nothing to fetch; expected hf:owner/repository/file.gguf or hf:owner/repository")
    repository, file = hub_name(name)
    with _told(name):
        files = shards(file) if file else wanted(name, _listed(repository))
        remotes = [_remote(repository, each) for each in files]
        places = [_fetched(remote, say) for remote in remotes]
        with contextlib.suppress(ModelError, *FAILURES):  # a card says the licence; a model may have none
            _fetched(_remote(repository, CARD), lambda text: None)
        checked = all(_checksum(remote.etag) for remote in remotes)
        return Pulled(locate(name), len(places), sum(place.stat().st_size for place in places), checked)


def _listed(repository: str) -> dict[str, int | None]:
    """Names and sizes of a repository's files."""
    siblings = HfApi().model_info(repository, files_metadata=True).siblings or []
    return {each.rfilename: each.size for each in siblings}


def _remote(repository: str, file: str) -> Remote:
    url = hf_hub_url(repository, file)
    found = get_hf_file_metadata(url)
    if not found.commit_hash or not re.fullmatch(r"\w[\w.-]{0,127}", found.etag or ""):
        raise ModelError(f"{_hub()} answers, but is no Hugging Face hub; see HF_ENDPOINT")
    return Remote(repository, file, url, found.etag or "", found.size)


def _fetched(remote: Remote, say: Callable[[str], None]) -> Path:
    """The file in the cache: whole, and with the right checksum."""
    if remote.blob.is_file() and not _is_sound(remote.blob, remote.etag):
        say(f"{remote.file} in the cache is damaged; fetching it again")
        remote.blob.unlink()
    if not remote.blob.is_file() and (remote.size or 0) <= constants.MAX_HTTP_DOWNLOAD_SIZE:
        _download(remote, say)
    checked = remote.blob.is_file()  # just now, or as it came
    path = Path(hf_hub_download(remote.repository, remote.file))
    if checked and path.resolve() == remote.blob.resolve():
        return path
    etag = Path(os.readlink(path)).name if path.is_symlink() else remote.etag
    if not _is_sound(path, etag):
        remote.blob.unlink(missing_ok=True)
        raise ModelError(_wrong(remote))
    return path


def _download(remote: Remote, say: Callable[[str], None]) -> None:
    remote.blob.parent.mkdir(parents=True, exist_ok=True)
    with remote.partial.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ModelError(f"{remote.file} is being fetched by another process; wait for it") from error
        with remote.partial.open("r+b") as file:
            _fill(remote, file, say)
        if not _is_sound(remote.partial, remote.etag):
            remote.partial.unlink()
            raise ModelError(_wrong(remote))
        remote.partial.replace(remote.blob)


def _fill(remote: Remote, file: BinaryIO, say: Callable[[str], None]) -> None:
    """Fetches what is missing.  A lost connection is tried again as long as something comes."""
    have = file.seek(0, 2)
    if remote.size is not None and have > remote.size:
        have = file.truncate(0)
        file.seek(0)
    missing = (remote.size or 0) - have
    free = shutil.disk_usage(remote.partial.parent).free
    if missing + SPARE_BYTES > free:
        raise ModelError(
            f"{remote.file} needs {file_size(missing)} more, and {remote.partial.parent} has {file_size(free)}"
        )
    size = "?" if remote.size is None else file_size(remote.size)
    say(f"{remote.file}: going on at {file_size(have)} of {size}" if have else f"{remote.file}: fetching {size}")
    while True:
        try:
            http_get(
                remote.url,
                file,
                resume_size=have,
                headers=build_hf_headers(),
                expected_size=remote.size,
                displayed_filename=remote.file,
            )
            return
        except HfHubHTTPError:
            raise
        except FAILURES:
            file.flush()
            now = file.seek(0, 2)
            if now <= have:
                raise
            have = now


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """Turns what the hub and its library raise into one line."""
    repository, file = hub_name(name)
    try:
        yield
    except HFValidationError as error:
        raise ModelError(f"model {name} cannot be on the hub: {_line(error)}") from error
    except GatedRepoError as error:
        where = f"{_hub()}/{repository}"
        raise ModelError(f"{repository} asks for consent: give it at {where}, then run: hf auth login") from error
    except RepositoryNotFoundError as error:
        raise ModelError(f"{repository} is not on the hub, or private (then run: hf auth login)") from error
    except LocalEntryNotFoundError as error:
        raise ModelError(f"no connection to {_hub()}; {_again(name)}") from error
    except EntryNotFoundError as error:
        known = {}
        with contextlib.suppress(*FAILURES):
            known = _listed(repository)
        raise ModelError(f"{repository} has no file {file}; {nearest(file or '', known)}") from error
    except OfflineModeIsEnabled as error:
        raise ModelError(f"HF_HUB_OFFLINE is set, so {name} cannot be fetched; unset it") from error
    except HfHubHTTPError as error:
        raise ModelError(f"the hub answers {error.response.status_code} for {name}; {_again(name)}") from error
    except FAILURES as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise ModelError(f"{constants.HF_HUB_CACHE} cannot hold {name}: {error.strerror}") from error
        raise ModelError(f"no connection to {_hub()} ({_line(error)}); {_again(name)}") from error


def _again(name: str) -> str:
    """What to do after a fetch that failed, and whether something of it is here."""
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=hub_name(name)[0], repo_type="model")
    kept = any(path.stat().st_size for path in folder.glob(f"blobs/*{UNFINISHED}"))
    so_far = "what came is kept, the same command goes on" if kept else "nothing of it is here yet; try again later"
    return f"{so_far}: batchrun models pull {shlex.quote(name)}"


def _is_sound(path: Path, etag: str) -> bool:
    """Whether a file has the checksum that is its name in the cache; True where that is none."""
    made = _checksum(etag)
    if made is None:
        return True
    with path.open("rb") as file:
        if len(etag) == 40:
            made.update(b"blob %d\0" % path.stat().st_size)
        while data := file.read(READ_BYTES):
            made.update(data)
    return made.hexdigest() == etag


def _checksum(etag: str) -> "hashlib._Hash | None":
    """What makes checksums of an etag's kind: SHA-256 for large files, git's for others; None for anything else."""
    kind = {64: "sha256", 40: "sha1"}.get(len(etag)) if re.fullmatch("[0-9a-f]+", etag) else None
    return hashlib.new(kind, usedforsecurity=False) if kind else None


def _wrong(remote: Remote) -> str:
    return (
        f"{remote.file} came with another checksum than the hub gives for it ({remote.etag[:12]}…) and was deleted; "
        "fetch it again, and if that happens twice, mistrust the connection"
    )


def _line(error: BaseException) -> str:
    return without_credentials(" ".join(str(error).split()))[:200] or type(error).__name__


def _hub() -> str:
    return without_credentials(constants.ENDPOINT)
