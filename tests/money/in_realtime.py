"""Realtime sessions from seeds: upstreams that lie, are cut or silent, callers that leave, and keys that are revoked.

A session is a plan of a seed. Its upstream finds the plan by a header that the gateway forwards, and notes what it has
sent. `faults` compares that with what the caller heard, with the records and with the ledger.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.billing.call_record import CallRecord
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Hold
from gateway.runtime.gateway import Gateway
from gateway.store.links import slot
from tests.conftest import PEPPER
from tests.polling import until

PRICE = {"input": 4, "output": 16, "audio_input": 32, "audio_output": 64, "cached_input": Decimal("0.4")}
NAMED = "x-session"
AT_ONCE = 8  # sessions
SILENCE = 0.3  # seconds after which an upstream has failed
WAITS = 1.0  # seconds without an event after which a caller leaves
SECOND = 48_000  # bytes of audio, as PCM with 24,000 samples of 16 bits
BALANCES = (50_000_000, 100_000_000, 150_000_000, 400_000_000, 10_000_000_000, 10_000_000_000)
USAGES = ("honest", "honest", "honest", "missing", "zero", "negative", "huge", "text", "small")
ENDS = (
    "done",
    "done",
    "done",
    "done",
    "done twice",
    "failed",
    "close",
    "abort",
    "silence",
    "no JSON",
    "binary",
    "other id",
)
LEAVES = ("stays", "stays", "stays", "closes", "aborts")
MOST_UNPAID = 4_000_000  # the largest deltas of text and of audio that are delivered before their hold
LIMIT, WINDOW = 32_768, 32_000  # tokens of one response, and of its prompt, that are believed at most


class ResponsePlan(Struct, frozen=True):
    """A response of the upstream."""

    texts: tuple[int, ...]  # characters of each delta
    audio: tuple[int, ...]  # bytes
    usage: str
    end: str
    is_asked_for: bool  # the upstream waits for the caller to ask for it


class SessionPlan(Struct, frozen=True):
    """A session of a seed."""

    number: int
    balance: int
    said: tuple[int, ...]  # characters of each question
    responses: tuple[ResponsePlan, ...]
    leaves: str
    after: int  # events that the caller hears before it leaves
    revoked_after: int | None  # events before its key is revoked

    def header(self) -> str:
        return f"session-{self.number}"


class SentResponse(Struct):
    """What the upstream has sent of a response."""

    plan: ResponsePlan
    units: int = 0  # characters, which are ASCII
    audio: int = 0  # bytes
    is_done: bool = False


class Outcome(Struct):
    """What became of a session."""

    plan: SessionPlan
    sent: list[SentResponse] = field(default_factory=list)
    heard: Counter[str] = field(default_factory=Counter)  # characters, by response
    ended: set[str] = field(default_factory=set)  # responses whose end the caller has heard
    status: int = 101  # of the handshake
    records: list[CallRecord] = field(default_factory=list)
    balance: int = 0
    holds: int = 0
    uncollected: int = 0
    audit: list[str] = field(default_factory=list)


def plan_of(seed: int, number: int) -> SessionPlan:
    """The session with this number."""
    chance = random.Random(f"{seed} {number}")
    is_good = chance.random() < 0.4  # nobody lies, leaves or is cut
    responses = tuple(_response(chance, is_good=is_good) for _ in range(chance.randint(1, 4)))
    return SessionPlan(
        number,
        chance.choice(BALANCES),
        tuple(chance.randint(1, 3_000) for _ in responses),
        responses,
        "stays" if is_good else chance.choice(LEAVES),
        chance.randint(0, 12),
        chance.randint(0, 8) if not is_good and chance.random() < 0.2 else None,
    )


def _response(chance: random.Random, *, is_good: bool) -> ResponsePlan:
    most = 500 if chance.random() < 0.15 else 5  # some responses cost more than is held at first
    texts = tuple(chance.randint(1, 400) for _ in range(chance.randint(0, most)))
    audio = tuple(chance.randint(1, SECOND // 2) * 2 for _ in range(chance.choice((0, 0, 0, 1, 2))))
    usage, end = ("honest", "done") if is_good else (chance.choice(USAGES), chance.choice(ENDS))
    if end == "failed" and chance.random() < 0.5:
        texts = audio = ()
    return ResponsePlan(texts, audio, usage, end, chance.random() < 0.8)


def honest(one: SentResponse) -> tuple[int, int]:
    """Tokens of text and of audio of an honest upstream's output; its prompt has 7 of text."""
    return -(-one.units // 4), round(one.audio / SECOND * 20)


def _usage(one: SentResponse) -> Any:
    text, audio = honest(one)
    details = {"text_tokens": text, "audio_tokens": audio}
    told: dict[str, Any] = {
        "honest": {
            "total_tokens": 7 + text + audio,
            "input_tokens": 7,
            "output_tokens": text + audio,
            "input_token_details": {"text_tokens": 7, "audio_tokens": 0, "cached_tokens": 0},
            "output_token_details": details,
        },
        "missing": None,
        "zero": {"input_tokens": 0, "output_tokens": 0},
        "negative": {"input_tokens": -5, "output_tokens": -(10**18), "output_token_details": details},
        "huge": {"input_tokens": 10**15, "output_tokens": 10**15, "output_token_details": {"audio_tokens": 10**15}},
        "text": {"input_tokens": "many", "output_tokens": [1]},
        "small": {"input_tokens": 1, "output_tokens": 1},
    }
    return told[one.plan.usage]


class LyingUpstream:
    """A server that does what the plans of sessions say."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LyingUpstream]:
        async with serve(self._serve, "127.0.0.1", 0, max_size=2**25) as server:
            self.url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/v1"
            yield self

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        outcome = self.outcomes[socket.request.headers[NAMED]]
        try:
            await self._say(socket, "session.created", session={"id": "sess_1", "model": "upstream-rt"})
            for number, plan in enumerate(outcome.plan.responses):
                if plan.is_asked_for:
                    await _asked(socket)
                outcome.sent.append(SentResponse(plan))
                if not await self._respond(socket, f"resp_{number}", outcome.sent[-1]):
                    return
            async for _ in socket:
                pass
        except ConnectionClosed:
            pass

    async def _respond(self, socket: ServerConnection, name: str, one: SentResponse) -> bool:
        """Send a response; whether the session goes on."""
        plan = one.plan
        await self._say(socket, "response.created", response={"id": name, "status": "in_progress"})
        for size in plan.texts:
            await self._say(socket, "response.output_text.delta", response_id=name, delta="x" * size)
            one.units += size
        for size in plan.audio:
            delta = base64.b64encode(bytes(size)).decode()
            await self._say(socket, "response.output_audio.delta", response_id=name, delta=delta)
            one.audio += size
        if plan.end in ("done", "done twice", "failed", "other id"):
            status = "failed" if plan.end == "failed" else "completed"
            named = f"{name}_other" if plan.end == "other id" else name
            response = {"id": named, "status": status, "usage": _usage(one)}
            for _ in range(1 + (plan.end == "done twice")):
                await self._say(socket, "response.done", response=response)
            one.is_done = plan.end != "other id"
            return True
        if plan.end == "close":
            await socket.close()
        elif plan.end == "abort":
            socket.transport.abort()
        elif plan.end == "silence":
            await socket.wait_closed()
        else:
            await socket.send(b"\x00" if plan.end == "binary" else "{no JSON")
            await socket.wait_closed()
        return False

    async def _say(self, socket: ServerConnection, kind: str, **fields: Any) -> None:
        await socket.send(json.dumps({"type": kind, "event_id": "event_x", **fields}))


async def _asked(socket: ServerConnection) -> None:
    async for text in socket:
        if json.loads(text)["type"] == "response.create":
            return
    raise ConnectionClosed(None, None)


def settings_of(folder: Path, url: str) -> Settings:
    """One model of that upstream."""
    model = {"endpoints": ["realtime"], "price": PRICE, "retries": 0, "context_window": WINDOW, "idle_timeout": SILENCE}
    return parse(
        {
            "store": {"data_dir": str(folder)},
            "log": {"access": False},
            "providers": {
                "up": {"plugin": "openai", "base_url": url, "api_key": "sk-upstream-canary", "forward_headers": [NAMED]}
            },
            "models": {"rt": {**model, "provider": "up", "model": "upstream-rt"}},
        },
        demo=True,
    )


class RealtimeRunner:
    """Runs sessions on one gateway, which listens on a port."""

    def __init__(self, gateway: Gateway, upstream: LyingUpstream, port: int) -> None:
        self._gateway = gateway
        self._upstream = upstream
        self._url = f"ws://127.0.0.1:{port}/v1/realtime?model=rt"
        self._keys = Keys(gateway.store, PEPPER)
        self._accounts = Accounts(gateway.store, gateway.ledger)
        self._records: dict[str, list[CallRecord]] = {}
        self._record()

    def _record(self) -> None:
        book = self._gateway.ledger.book

        def noted(hold: Hold, record: CallRecord | None, *, free: bool = False) -> None:
            assert record is not None
            self._records.setdefault(record.account, []).append(record)
            book(hold, record, free=free)

        self._gateway.ledger.book = noted  # type: ignore[method-assign]

    async def run(self, sessions: int, *, seed: int) -> tuple[list[Outcome], list[str]]:
        """All outcomes, and what is wrong with the first session that breaks a promise."""
        numbers, outcomes, found = iter(range(sessions)), list[Outcome](), list[str]()

        async def work() -> None:
            for number in numbers:
                outcomes.append(outcome := await self._session(plan_of(seed, number)))
                found.extend(f"session {number}: {fault}: {outcome}" for fault in faults(outcome))
                if found:
                    return

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return outcomes, found

    async def _session(self, plan: SessionPlan) -> Outcome:
        gateway, account, ledger = self._gateway, f"account-{plan.number}", self._gateway.ledger
        await ledger.open(account, "default", balance=plan.balance)
        key = await self._keys.create(account)
        outcome = self._upstream.outcomes[plan.header()] = Outcome(plan)
        headers = {"Authorization": f"Bearer {key.text}", NAMED: plan.header()}
        try:
            async with connect(self._url, additional_headers=headers, max_size=2**25, compression=None) as wire:
                with suppress(ConnectionClosed, TimeoutError):
                    await self._talk(wire, outcome, key.id)
        except InvalidHandshake as refused:
            outcome.status = refused.response.status_code  # type: ignore[attr-defined]
        await until(lambda: self._is_settled(account))
        await ledger.drain()
        outcome.records = self._records.pop(account, [])
        outcome.balance = (await self._accounts.show(account)).balance
        outcome.holds = await gateway.store.link(slot(account)).call("HLEN", f"{slot(account)}:rv")
        outcome.uncollected = sum([line.uncollected or 0 async for line in ledger.lines(account)])
        report = await ledger.audit(account)
        outcome.audit = [f"{one.rule}: {one.expected}, {one.found}" for one in report.mismatches]
        return outcome

    async def _is_settled(self, account: str) -> bool:
        return (await self._accounts.show(account)).held == 0

    async def _talk(self, wire: Any, outcome: Outcome, key: str) -> None:
        plan, events = outcome.plan, 0
        for size in plan.said:
            content = [{"type": "input_text", "text": "y" * size}]
            item = {"type": "message", "role": "user", "content": content}
            await wire.send(json.dumps({"type": "conversation.item.create", "item": item}))
            await wire.send(json.dumps({"type": "response.create"}))
        while True:
            if plan.leaves != "stays" and events >= plan.after:
                if plan.leaves == "aborts":
                    wire.transport.abort()
                return
            if plan.revoked_after == events:
                await self._keys.revoke(key)
            async with asyncio.timeout(WAITS):
                event = json.loads(await wire.recv())
            events += 1
            if event["type"] == "response.output_text.delta":
                outcome.heard[event["response_id"]] += len(event["delta"])
            if event["type"] == "response.done":
                outcome.ended.add(event["response"]["id"])
                if len(outcome.ended) == len(plan.responses):
                    return


def faults(outcome: Outcome) -> Iterator[str]:
    """The promises that a session breaks."""
    plan, records = outcome.plan, outcome.records
    owed, paid = sum(record.cost for record in records), plan.balance - outcome.balance
    if outcome.audit:
        yield f"the audit finds {outcome.audit}"
    if outcome.holds:
        yield "money is held"
    if paid + outcome.uncollected != owed:
        yield f"{paid} were paid and {outcome.uncollected} not, of {owed}"
    if outcome.balance < 0:
        yield f"the balance is {outcome.balance}"
    if len([record for record in records if record.cost]) > len(outcome.sent):
        yield "more calls are charged than responses have begun"
    if (
        plan.responses
        and all(not (one.units or one.audio) and one.plan.end == "failed" for one in outcome.sent)
        and owed
    ):
        yield f"{owed} are owed for responses that failed before any content"
    tokens_out = sum(record.usage.tokens_out for record in records)
    if tokens_out < sum(size // 4 for size in outcome.heard.values()) * 0.99:
        yield f"{tokens_out} tokens are charged, of {outcome.heard} characters"
    most = len(outcome.sent) * (LIMIT + WINDOW) + sum(plan.said) + sum(one.units for one in outcome.sent)
    if tokens_out + sum(record.usage.tokens_in for record in records) > most:
        yield f"more than {most} tokens are believed"
    is_true = all(one.plan.usage == "honest" and one.plan.end != "other id" for one in outcome.sent)
    if outcome.uncollected > MOST_UNPAID and is_true:
        yield f"{outcome.uncollected} were delivered and cannot be paid"
    if is_honest(outcome):
        tokens = [honest(one) for one in outcome.sent]
        right = sum(1000 * (4 * 7 + 16 * text + 64 * audio) for text, audio in tokens)
        if owed != right:
            yield f"{owed} are owed, and {right} were used"


def is_honest(outcome: Outcome) -> bool:
    """Whether the session ended by itself, and its upstream told the truth all the time."""
    plan = outcome.plan
    return (
        outcome.status == 101
        and plan.leaves == "stays"
        and plan.revoked_after is None
        and len(outcome.sent) == len(outcome.ended) == len(plan.responses)
        and all(one.is_done and one.plan.usage == "honest" and one.plan.end != "failed" for one in outcome.sent)
    )
