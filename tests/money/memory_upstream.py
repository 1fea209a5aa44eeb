"""An HTTP client that sends nothing: answers come from `Upstreams`, so providers run without sockets.

A caller leaves between two pieces, when `leave(case)` is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import ClassVar

from gateway.errors import UpstreamTimeout, UpstreamTruncated, UpstreamUnreachable
from gateway.http_client.send_state import set_sent
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Answer, Body, Upstream
from tests.money.cases import Case
from tests.money.upstreams import Script, Truth, Upstreams
from tests.polling import turns

YIELD_EVERY = 4  # pieces; other calls of the round run meanwhile


class MemoryUpstream(Upstream):
    """Every upstream, in this process."""

    upstreams: ClassVar[Upstreams]
    #: Makes the caller of a case leave; whether it was there.
    leave: ClassVar[Callable[[Case], bool]]

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
    ) -> Answer:
        assert isinstance(body, bytes)
        if "away" in url:
            return await self._unreachable(body)
        case, truth, script = self.upstreams.receive(body)
        set_sent(True)
        left = case.cell.moment == "sent" and type(self).leave(case)
        if left:
            await turns(2)
        content = MemoryResponse(case, truth, script, left=left)
        if script.end == "silence" and not script.pieces:
            await content.silence()
        return Answer(content)  # type: ignore[arg-type]  # it has what an Answer uses

    async def _unreachable(self, body: bytes) -> Answer:
        set_sent(False)
        case, truth, _ = self.upstreams.receive(body)
        truth.requests, truth.refused = 0, False
        if case.cell.moment != "never" and type(self).leave(case):
            await asyncio.Event().wait()
        raise UpstreamUnreachable()


class MemoryResponse:
    """The pieces of one answer; what `Answer` uses of a `Response`."""

    coding = ""
    ended = False

    def __init__(self, case: Case, truth: Truth, script: Script, *, left: bool) -> None:
        self.status = script.status
        self.headers = {"Content-Type": script.media_type}
        self._case, self._truth, self._script = case, truth, script
        self._at = 0
        self._leave_at = _leaves_before(case, script)
        self._left = left

    async def take(self, lane: Callable[[bytes], bool] | None = None) -> bytes:
        """The next piece."""
        while True:
            if self._at == self._leave_at and not self._left:
                self._left = MemoryUpstream.leave(self._case)
                self._leave_at = -1
                await turns(2)
            if self._at == len(self._script.pieces):
                return await self._end()
            if self._at % YIELD_EVERY == 0:
                await turns(1)
            piece = self._script.pieces[self._at]
            self._at += 1
            self._truth.words += piece.words
            # Until the gateway has read it, a refusal is not known: see tests/inference/test_found_defects.py.
            self._truth.refused = self.status != 200
            if lane is None or not lane(piece.data):
                return piece.data

    async def whole(self, limit: int) -> bytes:
        """The whole body."""
        parts = []
        while part := await self.take():
            parts.append(part)
        return b"".join(parts)

    async def silence(self) -> None:
        """Nothing more comes: the timeout, or the end of a call whose caller has left."""
        if self._left:
            await asyncio.Event().wait()
        raise UpstreamTimeout()

    async def _end(self) -> bytes:
        if self._script.end == "silence":
            await self.silence()
        if self._script.end == "cut":
            raise UpstreamTruncated()
        return b""

    def release(self) -> None:
        """The answer's own end was read."""

    def close(self) -> None:
        """Stop reading."""


def _leaves_before(case: Case, script: Script) -> int:
    """The piece before which the caller leaves; -1: it does not, or not while the answer arrives."""
    if script.status != 200:
        return -1
    if not case.stream:
        return 0 if case.cell.moment in ("first", "middle") else -1
    content = [at for at, piece in enumerate(script.pieces) if piece.words]
    if not content:
        return -1
    match case.cell.moment:
        case "first":
            return content[0] + 1
        case "middle":
            return content[len(content) // 2] + 1
        case "finish":
            finish = [at for at, piece in enumerate(script.pieces) if piece.stage == "finish"]
            return (finish[-1] if finish else content[-1]) + 1
    return -1
