"""Calls of clients and their attempts, as the clients saw them."""

from __future__ import annotations

import secrets
import time

from msgspec import Struct, field


class Attempt(Struct):
    """One request."""

    name: str
    started: float
    ended: float = 0.0
    status: int = 0  # 0: no answer
    request_id: str = ""
    failure: str = ""  # what its client saw instead of a whole answer


class Call(Struct):
    """One call of an SDK with its attempts."""

    kind: str
    account: str
    words: int
    name: str = field(default_factory=lambda: "call-" + secrets.token_hex(8))
    started: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    attempts: list[Attempt] = field(default_factory=list)
    failure: str = ""  # what the program got after the retries
    refused: bool = False  # by a limit that it has reached

    @property
    def is_whole(self) -> bool:
        """Whether the program has the whole answer."""
        return not self.failure and not self.refused


def end_attempt(call: Call, now: float, failure: str) -> None:
    """Note the end of the last attempt, if it is not over."""
    if call.attempts and not call.attempts[-1].ended:
        call.attempts[-1].ended, call.attempts[-1].failure = now, failure
