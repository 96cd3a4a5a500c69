"""The agents that a question fans out to: a name for the card, and what the agent is told."""

from dataclasses import dataclass
from pathlib import Path

from batchrun.errors import UsageError

MOST_ROLES = 64


@dataclass(frozen=True, slots=True)
class Role:
    """An agent.  `task`: what it is told after the shared part."""

    name: str
    task: str


ROLES = (
    Role("Key facts", "List the key facts that bear on the question. Facts only, each in a short sentence."),
    Role("Plan", "Give a plan: the steps in order, each with what it needs."),
    Role("Risks", "Name the risks, the most serious first, and what would lessen each."),
    Role("Contrarian", "Argue against the obvious answer as well as it can be done."),
    Role("Costs", "Say what it costs: money, time, people; give numbers where the text has them."),
    Role("Timeline", "Put what happened, and what should happen, in order of time."),
    Role("Stakeholders", "Say who is concerned, and what each of them wants."),
    Role("Summary", "Answer the question in three sentences."),
)


def read_roles(path: Path) -> tuple[Role, ...]:
    """Roles from a file with one `name: task` a line; blank lines and lines after `#` say nothing.

    Raises UsageError with the line that is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"--roles {path} is not UTF-8; expected UTF-8 text") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--roles {path} cannot be read: {reason}; expected a text file") from error
    roles = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, colon, task = (part.strip() for part in line.partition(":"))
            if not (name and colon and task):
                raise UsageError(f"--roles {path} line {number} is no role; expected: name: what the agent is told")
            roles.append(Role(name, task))
    if not 1 <= len(roles) <= MOST_ROLES:
        raise UsageError(f"--roles {path} holds {len(roles)} roles; expected 1 to {MOST_ROLES}")
    return tuple(roles)
