"""The exception tree, with the exit code each branch ends in.

    BatchrunError
    ├── UsageError      2   a flag, a setting or a configuration file is wrong
    ├── InputError      4   the input is refused before the first token
    ├── ModelError      5   the model or its engine could not start
    │   └── BackendError    the engine failed while it ran
    ├── OutputError     6   a result could not be written
    ├── OutputClosed  141   whoever read standard output has left; nothing needs to be said
    └── JobError        -   one job cannot run: it becomes a `rejected` result, the run goes on

A failure of one job is data; only a failure of the run is an exception that leaves the run.
"""

from batchrun.core import Problem


class BatchrunError(Exception):
    """Base of every error that a user may see.  The message is one line: what, where, what was expected."""

    exit_code = 1


class UsageError(BatchrunError):
    """A flag, an environment variable or a configuration file holds something unusable."""

    exit_code = 2


class InputError(BatchrunError):
    """The run was refused before it started: no input, nothing in it, or an output that is not ours to write."""

    exit_code = 4


class ModelError(BatchrunError):
    """The model is missing, unreadable, or does not fit into this machine."""

    exit_code = 5


class BackendError(ModelError):
    """The engine reported a failure during a step."""


class OutputError(BatchrunError):
    """A result could not be written; whole lines written before it are kept."""

    exit_code = 6


class OutputClosed(BatchrunError):
    """The reader of standard output left, as `| head` does.  The status is the one of a process that SIGPIPE ended."""

    exit_code = 141


class JobError(BatchrunError):
    """One job cannot run.  Carries the `Problem` that its `rejected` result will show."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem
