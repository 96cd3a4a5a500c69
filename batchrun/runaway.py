"""Notices a row that goes round in circles: the same few tokens again and again in a string, or a number without end.

Pure.  It looks at one string or number at a time, so a list that says the same thing often is none of its business.
"""

from collections import deque

WINDOW_TOKENS = 40
"""So many tokens that repeat themselves are no text any more."""

LONGEST_PERIOD = 10
LOOK_EVERY = 8
LONGEST_NUMBER_BYTES = 40
"""Digits of a number: a double holds 17, and no document counts beyond 40."""


class RunawayGuard:
    """Follows the tokens of one row."""

    __slots__ = ("_count", "_recent")

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=WINDOW_TOKENS)
        self._count = 0

    def saw(self, token: int, offset: int, said_bytes: int, *, in_number: bool) -> bool:
        """Takes down a token and says whether the row runs away.

        `offset`: bytes of the string or number that the text is in now, 0 between two; `said_bytes`: of the token.
        """
        if offset < said_bytes or not offset:  # another string or number began, or one ended
            self._recent.clear()
            self._count = 0
            return False
        if in_number and offset > LONGEST_NUMBER_BYTES:
            return True
        self._recent.append(token)
        self._count += 1
        if self._count < WINDOW_TOKENS or self._count % LOOK_EVERY:
            return False
        tokens = list(self._recent)
        return any(tokens[period:] == tokens[:-period] for period in range(1, LONGEST_PERIOD + 1))
