"""Idempotency-Key: the same request sent twice runs once, is charged once, and gets the same bytes twice.

::

    found = await idempotency.claim(key, name, digest=…, request_id=…, model=…)    # a Claim, or the stored Answer
    claim.keep(bytes); claim.complete(200, headers)                                # or claim.close(charged=…)

A key belongs to an account. Its record is in the account's hash slot: claimed before admission, kept while the call's
hold is renewed, then the answer for 24 hours: at most `MAX_ANSWER` bytes of it, and `most` bytes of all answers of the
account. The record of a call that was refused or cost nothing is deleted, so that a retry runs. Sharp edge: `claim`
does not check the caller's key; call `Ledger.count_replay` before an answer is replayed.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from gateway.errors import AnswerLost, Conflict, GatewayError, InvalidValue
from gateway.ledger.api_key import ApiKey
from gateway.ledger.line_meta import superseded_meta
from gateway.ledger.scripts import load_script
from gateway.log import gateway_log
from gateway.store.links import Links, slot

MAX_ANSWER = 1 << 20  # bytes of one answer; a longer one is not stored
NAME = re.compile(r"[\x20-\x7e]{1,255}")
KEPT_HEADERS = frozenset({"Content-Type", "Cache-Control", "X-Accel-Buffering"})  # and every x-gateway-…

CLAIMED, BUSY, OTHER, DONE = 0, 1, 2, 3  # codes of claim.lua; any other: the answer is lost
MORE = 2  # the code of keep.lua and forget.lua when there are answers to drop

_encoder = msgspec.json.Encoder()


class StoredHead(Struct, frozen=True):
    """The stored part of an answer except its body."""

    status: int
    headers: dict[str, str]
    whole: bool  # False: it was cut, and its replay is cut at the same byte


class StoredAnswer(Struct, frozen=True):
    """A stored answer."""

    request_id: str
    head: StoredHead
    body: bytes


_heads = msgspec.json.Decoder(StoredHead)


def check_name(text: str) -> str:
    """The header's value; raises InvalidValue when it is not allowed."""
    if not NAME.fullmatch(text):
        raise InvalidValue("Idempotency-Key must be 1 to 255 printable ASCII characters")
    return text


def request_digest(path: str, body: bytes) -> str:
    """The digest of path and body, equal for equal requests; for a form, `body` is its `digest`, without boundaries."""
    digest = hashlib.sha256(path.encode() + b"\0")
    digest.update(body)
    return digest.hexdigest()


class Idempotency:
    """The records of all accounts."""

    def __init__(self, links: Links, *, most: int = 64 << 20) -> None:
        self.most = most  # bytes of answers kept per account; the oldest are deleted
        self._links = links
        self._claim = load_script("claim")
        self._keep = load_script("keep")
        self._forget = load_script("forget")
        self._tasks: set[asyncio.Task[None]] = set()

    async def claim(self, key: ApiKey, name: str, *, digest: str, request_id: str, model: str) -> Claim | StoredAnswer:
        """The claim to run the call, or its stored answer; raises Conflict, AnswerLost or InvalidValue."""
        account, hashed = slot(key.account), hashlib.sha256(name.encode()).hexdigest()
        code, owner, *kept = await self._links.link(account).eval(
            self._claim,
            [account],
            [hashed, digest, request_id, key.id, superseded_meta(key, model)],
            repeatable=True,
        )
        if code == CLAIMED:
            return Claim(self, account, name=hashed, request_id=request_id)
        if code == DONE:
            return StoredAnswer(owner.decode(), _heads.decode(kept[0]), kept[1])
        if code == BUSY:
            raise Conflict()
        if code == OTHER:
            raise InvalidValue("This Idempotency-Key was used before, with another request")
        raise AnswerLost(
            f"Request {owner.decode()} had this Idempotency-Key and was charged, but its answer is not kept; "
            "use another key to run it again"
        )

    def end(self, claim: Claim, state: str, *, head: bytes = b"", body: bytes = b"") -> None:
        """Write how a claim ended, without waiting; if the store is away, the claim ends with its lease."""
        task = asyncio.get_running_loop().create_task(self._end(claim, [state, head, body]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, claim: Claim, result: list[str | bytes | int]) -> None:
        try:
            link = self._links.link(claim.account)
            args = [claim.name, claim.request_id, *result, self.most]
            code = await link.eval(self._keep, [claim.account], args, repeatable=True)
            while code == MORE:
                code = await link.eval(self._forget, [claim.account], [self.most], repeatable=True)
        except GatewayError as error:
            # The call was answered and settled; only its replay is lost.
            gateway_log.warning("%s: answer not stored: %s", claim.request_id, error)

    async def drain(self) -> None:
        """Wait until all results of claims are written."""
        while self._tasks:
            await asyncio.wait(self._tasks)


class Claim:
    """One call's claim on an Idempotency-Key, and the answer it collects; the first `complete` or `close` ends it."""

    def __init__(self, records: Idempotency, account: str, *, name: str, request_id: str) -> None:
        self.account = account  # its hash slot
        self.name = name
        self.request_id = request_id
        self._records = records
        self._parts: list[bytes] = []
        self._size = 0
        self._ended = False

    @property
    def keeps(self) -> bool:
        """Whether this answer is stored for a retry, so that the call should go on without its client."""
        return self._size <= MAX_ANSWER

    def keep(self, data: bytes) -> None:
        """Add bytes of the answer's body, in order."""
        self._size += len(data)
        if self.keeps:
            self._parts.append(data)
        else:
            self._parts.clear()

    def complete(self, status: int, headers: Mapping[str, str], *, whole: bool = True) -> None:
        """The answer has ended: a retry gets the stored bytes, or AnswerLost when the answer was too long."""
        if self._ended:
            return
        self._ended = True
        if not self.keeps:
            self._records.end(self, "lost")
            return
        kept = {name: value for name, value in headers.items() if name in KEPT_HEADERS or name.startswith("x-gateway-")}
        head = _encoder.encode(StoredHead(status, kept, whole))
        self._records.end(self, "done", head=head, body=b"".join(self._parts))

    def close(self, headers: Mapping[str, str], *, charged: bool) -> None:
        """The call has ended: an incomplete answer is stored if it was charged; otherwise a retry may run."""
        if self._ended:
            return
        if charged and self._size:
            self.complete(200, headers, whole=False)
            return
        self._ended = True
        self._records.end(self, "lost" if charged else "free")
