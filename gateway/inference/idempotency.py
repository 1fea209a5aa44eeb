"""Idempotency-Key: the same request sent twice runs once, is charged once, and is answered twice with the same bytes.

::

    found = await idempotency.claim(key, name, digest=…, request_id=…, model=…)    # a Claim, or the Answer kept before
    claim.keep(bytes); claim.complete(200, headers)                                # or claim.close(charged=…)

A key belongs to an account. Its record lives in the account's slot: claimed before admission, alive while the call's
hold is renewed, then the answer for 24 hours, at most `MAX_ANSWER` bytes of it. What was refused or cost nothing is
forgotten, so that a retry runs. Sharp edge: `claim` says nothing about the caller's key; whoever replays an answer asks
`confirm` first.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gateway.errors import AnswerLost, Conflict, GatewayError, InvalidValue
from gateway.ledger.call import LineMeta
from gateway.ledger.scripts import Links, load_script, slot
from gateway.log import gateway_log
from gateway.store.link import RedisReplyError

if TYPE_CHECKING:
    from gateway.ledger.api_key import ApiKey

MAX_ANSWER = 1 << 20  # bytes of one answer; a longer one is not kept
MAX_KEPT = 64 << 20  # bytes of answers per account; the oldest make room
NAME = re.compile(r"[\x20-\x7e]{1,255}")
KEPT_HEADERS = frozenset({"Content-Type", "Cache-Control", "X-Accel-Buffering"})  # and every x-gateway-…

CLAIMED, BUSY, OTHER, DONE = 0, 1, 2, 3  # codes of claim.lua; any other: the answer is lost

_encoder = msgspec.json.Encoder()


class Head(Struct, frozen=True):
    """What is kept of an answer beside its body."""

    status: int
    headers: dict[str, str]
    whole: bool  # false: it was cut, and its replay is cut at the same place


class Answer(Struct, frozen=True):
    """An answer given before."""

    request_id: str
    head: Head
    body: bytes


_heads = msgspec.json.Decoder(Head)


def check_name(text: str) -> str:
    """The header's value, or the 400 that says what it may be."""
    if not NAME.fullmatch(text):
        raise InvalidValue("Idempotency-Key must be 1 to 255 printable ASCII characters")
    return text


def request_digest(path: str, body: bytes) -> str:
    """What makes two requests the same: path and body; of a form its `digest`, which no boundary changes."""
    digest = hashlib.sha256(path.encode() + b"\0")
    digest.update(body)
    return digest.hexdigest()


class Idempotency:
    """The records of all accounts."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._claim = load_script("claim")
        self._keep = load_script("keep")
        self._tasks: set[asyncio.Task[None]] = set()

    async def claim(self, key: ApiKey, name: str, *, digest: str, request_id: str, model: str) -> Claim | Answer:
        """The right to run the call, or its kept answer; Conflict, AnswerLost or InvalidValue."""
        account, hashed = slot(key.account), hashlib.sha256(name.encode()).hexdigest()
        note = _encoder.encode(LineMeta(key.id, model, outcome="superseded"))
        code, owner, *kept = await self._links.link(account).eval(
            self._claim, [account], [hashed, digest, request_id, key.id, note]
        )
        if code == CLAIMED:
            return Claim(self, account, name=hashed, request_id=request_id)
        if code == DONE:
            return Answer(owner.decode(), _heads.decode(kept[0]), kept[1])
        if code == BUSY:
            raise Conflict()
        if code == OTHER:
            raise InvalidValue("This Idempotency-Key was used before, with another request")
        raise AnswerLost(
            f"Request {owner.decode()} had this Idempotency-Key and was charged, but its answer is not kept; "
            "use another key to run it again"
        )

    def end(self, claim: Claim, state: str, *, head: bytes = b"", body: bytes = b"") -> None:
        """Write how a claim ended, from this tick on; a store that is away leaves it to the claim's lease."""
        task = asyncio.get_running_loop().create_task(self._end(claim, [state, head, body]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, claim: Claim, told: list[str | bytes | int]) -> None:
        try:
            await self._links.link(claim.account).eval(
                self._keep, [claim.account], [claim.name, claim.request_id, *told, MAX_KEPT]
            )
        except (GatewayError, RedisReplyError) as error:
            # The call itself is served and settled; only its replay is lost.
            gateway_log.warning("%s: answer not kept: %s", claim.request_id, error)

    async def drain(self) -> None:
        """Wait until every claim that ended so far is written."""
        while self._tasks:
            await asyncio.wait(self._tasks)


class Claim:
    """One call's right to an Idempotency-Key, and the answer it collects; ends once, by whichever call comes first."""

    def __init__(self, records: Idempotency, account: str, *, name: str, request_id: str) -> None:
        self.account = account  # its slot
        self.name = name
        self.request_id = request_id
        self._records = records
        self._parts: list[bytes] = []
        self._size = 0
        self._headers: dict[str, str] = {}
        self._ended = False

    @property
    def keeps(self) -> bool:
        """Whether a retry will find this answer, so that it is worth going on for one."""
        return self._size <= MAX_ANSWER

    def keep(self, data: bytes) -> None:
        """Bytes of the answer's body, in order."""
        self._size += len(data)
        if self.keeps:
            self._parts.append(data)
        else:
            self._parts.clear()

    def complete(self, status: int, headers: Mapping[str, str], *, whole: bool = True) -> None:
        """The answer has ended: a retry gets what was kept, or learns that it was too long."""
        if self._ended:
            return
        self._ended = True
        if not self.keeps:
            self._records.end(self, "lost")
            return
        kept = {name: value for name, value in headers.items() if name in KEPT_HEADERS or name.startswith("x-gateway-")}
        head = _encoder.encode(Head(status, kept, whole))
        self._records.end(self, "done", head=head, body=b"".join(self._parts))

    def close(self, headers: Mapping[str, str], *, charged: bool) -> None:
        """The call is over: what it cut short is kept if it cost something, else the key is free for a retry."""
        if self._ended:
            return
        if charged and self._size:
            self.complete(200, headers, whole=False)
            return
        self._ended = True
        self._records.end(self, "lost" if charged else "free")
