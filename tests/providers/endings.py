"""Vendors in tests whose chat answers end for another reason."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.testing import Reply, Seen


def ended(answer: Callable[[Seen], Reply], usual: str, other: str) -> Callable[[Seen], Reply]:
    """`answer`, with `other` wherever it says `usual`."""

    def altered(seen: Seen) -> Reply:
        reply = answer(seen)
        frames = None if reply.frames is None else [one.replace(usual.encode(), other.encode()) for one in reply.frames]
        return msgspec.structs.replace(reply, body=reply.body.replace(usual.encode(), other.encode()), frames=frames)

    return altered
