"""The order of candidates for a call of a session: weighted rendezvous hashing.

Each candidate has a score that depends on the session, on the candidate and on its weight only, and the lowest score
comes first. So every worker of every machine finds the same order, without a state to share. Where a candidate may not
be called, its sessions go to the candidates that are next for each of them, by their weights; no other session moves.
The credentials of a target share its weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol, TypeVar

_STEPS = 2.0**64


class Placed(Protocol):
    """What the order depends on."""

    @property
    def place(self) -> bytes: ...  # the name of the candidate, the same in all workers
    @property
    def weight(self) -> float: ...


P = TypeVar("P", bound=Placed)


def place_of(provider: str, model: str, credential: int, number: int) -> bytes:
    """The name of a candidate; `number` counts equal targets of one model."""
    return blake2b("\0".join((provider, model, str(credential), str(number))).encode(), digest_size=16).digest()


def by_affinity(candidates: Iterable[P], session: bytes) -> list[P]:
    """The candidates in the order of this session; a score takes 1 µs."""
    return sorted(candidates, key=lambda candidate: _score(candidate, session))


def _score(candidate: Placed, session: bytes) -> float:
    """An exponential variate of the rate `weight`: the lowest of several is that of a candidate in this proportion."""
    digest = blake2b(session, key=candidate.place, digest_size=8).digest()
    return -math.log((int.from_bytes(digest, "big") + 1) / _STEPS) / candidate.weight
