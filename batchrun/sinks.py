"""Opens what a run writes to, and closes it in order: the journal, the output made of it, the answers to pieces."""

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType

from batchrun.batch_api_results import as_batch_line
from batchrun.errors import OutputError
from batchrun.journal import Journal
from batchrun.outlet import Encode, Outlet, StandardOutput, TableOnStandardOutput, ViewFile, check_view
from batchrun.places import Asked, Places
from batchrun.sink import Relay, Sink


class Sinks:
    """All outputs of a run, as a context manager.  Raises InputError and OutputError as they do.

    `complete` is to be set by a run that has seen all of its input.
    """

    def __init__(
        self,
        places: Places,
        asked: Asked,
        *,
        fresh: bool,
        force: bool,
        prune: bool,
        pieces: bool,
        stopped: Callable[[], bool],
    ) -> None:
        self.complete = False
        self.journal: Journal | None = None
        self.pieces: Journal | None = None
        self._relay: Relay | None = None
        self._outlet: Outlet | None = None
        self._open = ExitStack()
        with ExitStack() as opening:
            if places.view and places.journal:
                check_view(places.view, places.journal, force)
            if places.journal:
                self.journal = Journal(places.journal, fresh=fresh, force=force, prune=prune, stopped=stopped)
                opening.callback(self._close_journal)
            if pieces and places.pieces:
                self.pieces = Journal(places.pieces, fresh=fresh, force=force, stopped=stopped)
                opening.callback(self.pieces.close)
            if places.view or places.to_stdout:
                self._outlet = outlet(places.view, asked.form)
                self._relay = Relay(self.journal, self._outlet, ordered=asked.ordered)
                opening.callback(self._close_relay)
            self._open = opening.pop_all()

    @property
    def sink(self) -> Sink:
        sink = self._relay or self.journal
        assert sink is not None, "a run writes somewhere"
        return sink

    def __enter__(self) -> "Sinks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def abandon(self) -> None:
        """The run ends at once, from another thread: no line is written any more, and no lock is left behind."""
        for one in (self.journal, self.pieces, self._outlet):
            if one:
                one.abandon()

    def _close_journal(self) -> None:
        assert self.journal is not None, "closed where it was opened"
        self.journal.complete = self.complete
        self.journal.close()

    def _close_relay(self) -> None:
        assert self._relay is not None, "closed where it was opened"
        self._relay.complete = self.complete
        self._relay.close()


def outlet(view: Path | None, form: str) -> Outlet:
    """Where lines go in one of the formats: a file, or (None) standard output."""
    encode: Encode = partial(as_batch_line, created=int(time.time())) if form == "openai" else bytes
    if view:
        return ViewFile(view, encode, table=form == "csv")
    if form != "csv":
        return StandardOutput(encode)
    try:
        return TableOnStandardOutput(tempfile.TemporaryFile())
    except OSError as error:
        raise OutputError(f"the folder for temporary files cannot be written: {error.strerror}") from error
