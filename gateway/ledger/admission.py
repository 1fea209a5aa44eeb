"""Admits calls: a script holds money and counts the call against the limits, or refuses with a reason.

The group and the prices of an account are stored in Redis alone, and cached by `AccountTerms`. The script compares what
was used with what is stored. At REGROUP the calls are sent again with the limits of the other group. A call whose quote
was made at other prices than the account has fails with `Repriced`; its caller makes a new quote.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from gateway import errors
from gateway.amounts import NANO, format_amount
from gateway.billing.price_terms import PriceTerms
from gateway.billing.quote import Quote
from gateway.errors import GatewayError, StoreFate, StoreUnavailable
from gateway.ledger.account_terms import AccountTerms, Known
from gateway.ledger.api_key import ApiKey
from gateway.ledger.hold import Hold
from gateway.ledger.inflight_checkpoint import InflightCheckpoint
from gateway.ledger.limits import DEFAULT_GROUP, GroupLimits, GroupTable, RateState
from gateway.ledger.line_meta import reclaim_meta
from gateway.ledger.script_batcher import LENGTH, Argument, Batch, Batches, Tick, bulk, command_start, own_error
from gateway.store.command import Script
from gateway.store.connection import RedisReplyError
from gateway.store.links import Links, slot
from gateway.store.verification import verify

LEASE = 60_000_000  # µs until a hold expires without a renewal
MAX_TRIES = 4  # replies of REGROUP or REPRICE for one call, after which it fails
GONE = 1  # detail of KEY: the store does not have the key
STALE = "-"  # no epoch: calls whose quotes have other prices than their account

# Codes of rules.lua
(
    OK,
    KEY,
    ACCOUNT,
    MODEL,
    TOOBIG,
    CONCURRENCY,
    RPM,
    TPM,
    BUDGET,
    FUNDS,
    DUP,
    DONE,
    SPENT,
    COSTLY,
    SCOPED,
    MEMBER,
    SESSION,
) = range(17)
NOACCT, REGROUP, REPRICE = 20, 21, 22
WIDTH = 9  # integers per call in a reply
SCOPES = {1: "key", 2: "account"}  # of rules.lua: whose limit refuses
#: Makes the error of a refusal without limits, by code; any other code is one of the key.
PLAIN_REFUSALS: dict[int, Callable[[], GatewayError]] = {
    ACCOUNT: partial(errors.InsufficientPermissions, "This account is disabled"),
    MODEL: errors.ModelNotPermitted,
    BUDGET: errors.BudgetExceeded,
    MEMBER: errors.MemberBudgetExceeded,
    FUNDS: errors.BalanceExhausted,
    SPENT: errors.SpendLimitExceeded,
    DONE: partial(errors.Conflict, "This request has been settled already", retry_after=None),
}

NEVER_LOWERED = bulk(0) + bulk(0)
ENABLED, NOT_ENABLED = bulk(1), bulk(0)  # whether the group may use the model

Waiting = tuple[str, "ApiKey", "Quote", "asyncio.Future[Hold]"]  # request_id, key, quote, the answer


class Repriced(Exception):
    """The quote was made at other prices than the account has; nothing is held. `unknown`: the prices must be read."""

    def __init__(self, *, unknown: bool) -> None:
        super().__init__()
        self.unknown = unknown


class Admission:
    """Admits calls; `orphaned` gets each hold whose caller was cancelled before the reply.

    A call is stored in the checkpoint before its admission is sent. If the worker is killed before the reply, another
    process finds the hold there. A refused call is removed from the checkpoint.
    """

    def __init__(
        self,
        links: Links,
        script: Script,
        *,
        tick: Tick,
        groups: GroupTable,
        orphaned: Callable[[Hold], None],
        checkpoint: InflightCheckpoint,
    ) -> None:
        self.terms = AccountTerms(links, groups)
        self._links = links
        self._checks: set[asyncio.Task[None]] = set()
        self._orphaned = orphaned
        self._checkpoint = checkpoint
        self._batches: Batches[Waiting] = Batches(
            links,
            script,
            tick=tick,
            arguments=self._arguments,
            command=self._command,
            on_answer=self._answered,
            on_failure=self._failed,
            repeatable=True,  # a repeated request id answers DUP, or DONE after its settlement
        )
        self._start = command_start(script)

    def admit(self, request_id: str, key: ApiKey, quote: Quote) -> asyncio.Future[Hold]:
        """A future with the hold, or with the error of a refusal. A refused call changes no balance and no limit.

        The error may be `Repriced`.
        """
        if quote.hold < 0 or quote.tokens < 0:
            raise errors.InternalError(detail=f"{request_id} asks for {quote.hold} nano and {quote.tokens} tokens")
        future: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()
        self._checkpoint.admit(key.account, request_id, key.id)
        self._batches.put(key.account, (request_id, key, quote, future))
        return future

    def _command(self, batch: Batch[Waiting], key: str) -> bytes:
        """The EVALSHA with `_arguments`, formatted directly: a third of the time of packing a list."""
        known = self.terms.of(batch.account)
        group, terms, head = known.group, known.terms, known.head
        if not head:
            head = known.head = _group_text(known, terms.epoch)
        text = ""
        for request_id, api_key, quote, _ in batch.items:
            if quote.terms is not terms and quote.terms != terms:
                head = _group_text(known, STALE)
            key_id, model, hold, tokens = api_key.id, quote.model, str(quote.hold), str(quote.tokens)
            enabled = ENABLED if group in quote.groups else NOT_ENABLED
            if api_key.scopes:
                enabled = bulk(enabled_text(group, api_key, quote))
            meta = reclaim_meta(api_key, quote)
            text += (
                f"{LENGTH[len(request_id)]}{request_id}{LENGTH[len(key_id)]}{key_id}{LENGTH[len(model)]}{model}"
                f"{enabled}{LENGTH[len(hold)]}{hold}{LENGTH[len(tokens)]}{tokens}{LENGTH[len(meta)]}{meta}"
                f"{_lowering_text(quote.least, quote.share) if quote.least else NEVER_LOWERED}"
            )
        text = f"*{11 + 9 * len(batch.items)}{self._start}{LENGTH[len(key)]}{key}{head}{text}\r\n"
        return text.encode() if text.isascii() else b""  # LENGTH counts characters

    def _arguments(self, batch: Batch[Waiting]) -> list[Argument]:
        known = self.terms.of(batch.account)
        group = known.group
        args: list[Argument] = [*group_arguments(group, known.groups.of(group), _epoch(batch, known.terms))]
        for request_id, key, quote, _ in batch.items:
            args += call_arguments(group, request_id, key, quote)
        return args

    def _answered(self, batch: Batch[Waiting], reply: list[Any]) -> None:
        first = reply[0]
        if first == REGROUP:
            self.terms.regroup(batch.account, reply[1].decode(errors="replace"))
            self._send_again(batch)
            return
        if first == REPRICE:
            unknown = reply[1].decode(errors="replace") != self.terms.of(batch.account).terms.epoch
            self._send_again(batch, unknown=unknown)
            return
        if first == NOACCT:
            for request_id, _, _, future in batch.items:
                self._checkpoint.clear(request_id)
                if not future.done():
                    future.set_exception(key_is_gone())
            self._check_store(batch.account)
            return
        at = 0
        for request_id, key, quote, future in batch.items:
            code, detail, granted, *numbers = reply[at : at + WIDTH]
            at += WIDTH
            rates = RateState(*numbers) if numbers[0] >= 0 or numbers[3] >= 0 else None
            if code in (OK, DUP):
                version = quote.price.version
                hold = Hold(request_id, key, quote.model, granted, rates, detail, version)
                if quote.price.factor != NANO:
                    hold.price_factor = format_amount(quote.price.factor)
                if future.done():
                    self._orphaned(hold)
                else:
                    future.set_result(hold)
            else:
                self._checkpoint.clear(request_id)
                if not future.done():
                    future.set_exception(_refusal(code, detail, rates, quote, scope=SCOPES.get(granted, "")))
                if code == KEY and detail == GONE:
                    self._check_store(batch.account)

    def _check_store(self, account: str) -> None:
        """Stop using the server if it lost its data: a known key or account is missing."""
        if not self._checks:
            task = asyncio.get_running_loop().create_task(self._verify(slot(account)))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _verify(self, key: str) -> None:
        with contextlib.suppress(GatewayError):
            await verify(self._links.link(key))

    def _send_again(self, batch: Batch[Waiting], *, unknown: bool = False) -> None:
        """Send the calls whose quotes have the prices of the account; the others fail with `Repriced`."""
        if batch.tries >= MAX_TRIES:
            self._failed(batch, terms_keep_changing())
            return
        terms, right = self.terms.of(batch.account).terms, []
        for item in batch.items:
            request_id, _, quote, future = item
            if not unknown and quote.terms == terms:
                right.append(item)
                continue
            self._checkpoint.clear(request_id)
            if not future.done():
                future.set_exception(Repriced(unknown=unknown))
        if right:
            self._batches.send(Batch(batch.account, right, self._batches, batch.tries))

    def _send_by_key(self, batch: Batch[Waiting]) -> bool:
        """Send the calls of each key again as a batch of their own; False if they are of one key."""
        by_key: dict[str, list[Waiting]] = {}
        for item in batch.items:
            by_key.setdefault(item[1].id, []).append(item)
        if len(by_key) == 1:
            return False
        for items in by_key.values():
            self._batches.send(Batch(batch.account, items, self._batches, batch.tries))
        return True

    def _failed(self, batch: Batch[Waiting], error: GatewayError) -> None:
        if could_not_read(error) and self._send_by_key(batch):
            return
        doubtful = not isinstance(error, StoreUnavailable) or error.fate is StoreFate.UNKNOWN
        for request_id, key, quote, future in batch.items:
            if future.done() and not future.cancelled():  # answered before a later part of the reply could not be used
                continue
            if not future.done():
                future.set_exception(own_error(error))
            if doubtful:  # the script may have run and held money
                self._orphaned(Hold(request_id, key, quote.model, quote.hold, None, 0))
            else:
                self._checkpoint.clear(request_id)


def could_not_read(error: GatewayError) -> bool:
    """Whether rules.lua met a value that it cannot use, such as a limit of a key that is no number.

    It writes nothing before it has read all values.
    """
    return isinstance(error, RedisReplyError) and error.kind == "ERR" and "attempt to" in (error.detail or "")


def terms_keep_changing() -> StoreUnavailable:
    """The error after `MAX_TRIES` replies of REGROUP or REPRICE. The script changed nothing in any of them."""
    return StoreUnavailable(detail="the account's group or prices keep changing", fate=StoreFate.REFUSED)


def key_is_gone() -> StoreUnavailable:
    """The error if the store lacks a known key or its account. They are never deleted, so it has lost data."""
    return StoreUnavailable(detail="the store does not have a known key any more", fate=StoreFate.REFUSED)


def _epoch(batch: Batch[Waiting], terms: PriceTerms) -> str:
    """The epoch to send: that of the account's prices if all quotes have these prices."""
    for _, _, quote, _ in batch.items:
        if quote.terms is not terms and quote.terms != terms:
            return STALE
    return terms.epoch


def group_arguments(group: str, limits: GroupLimits, epoch: str) -> tuple[str | int, ...]:
    """The first arguments of rules.lua: the group, its limits, the lease in µs, and the epoch of the own prices.

    The limit of sessions comes last.
    """
    rates = (limits.rpm or 0, limits.tpm or 0, limits.concurrency or 0)
    return group, *rates, LEASE, epoch, limits.max_session_cost or 0


def call_arguments(group: str, request_id: str, key: ApiKey, quote: Quote) -> tuple[Argument, ...]:
    """The arguments of rules.lua for one call."""
    note = reclaim_meta(key, quote)
    return (
        request_id,
        key.id,
        quote.model,
        enabled_text(group, key, quote),
        quote.hold,
        quote.tokens,
        note,
        quote.least,
        quote.share if quote.least else 0,
    )


def enabled_text(group: str, key: ApiKey, quote: Quote) -> str:
    """The argument `enabled` of rules.lua."""
    return ("1" if group in quote.groups else "0") + key.scopes


def _lowering_text(least: int, share: int) -> str:
    return bulk(least) + bulk(share)


async def run_rules(
    links: Links,
    script: Script,
    request_id: str,
    key: ApiKey,
    quote: Quote,
    *,
    groups: GroupTable,
    repeatable: bool = False,
) -> tuple[str, list[Any]]:
    """Run a script of rules.lua for one call that is not admitted; returns the account's group and the reply.

    `repeatable`: the script counts nothing.

    StoreUnavailable when there is no such account, although the key is known.
    """
    account, group, epoch = slot(key.account), DEFAULT_GROUP, quote.terms.epoch
    for _ in range(MAX_TRIES):
        args: list[Argument] = [*group_arguments(group, groups.of(group), epoch)]
        args += call_arguments(group, request_id, key, quote)
        reply = await links.link(account).eval(script, [account], args, repeatable=repeatable)
        if reply[0] == NOACCT:
            raise key_is_gone()
        if reply[0] == REGROUP:
            group = reply[1].decode()
        elif reply[0] == REPRICE:  # nothing is held, so the price of the quote does not matter
            epoch = reply[1].decode()
        else:
            return group, reply
    raise terms_keep_changing()


def _group_text(known: Known, epoch: str) -> str:
    """The arguments of a group in the Redis protocol, without the last line break."""
    return "".join(map(bulk, group_arguments(known.group, known.groups.of(known.group), epoch)))


def _refusal(code: int, detail: Any, rates: RateState | None, quote: Quote, *, scope: str) -> GatewayError:
    if code == KEY and detail == GONE:
        return key_is_gone()
    if code == SCOPED:
        return errors.KeyRestricted(scopes=detail.decode(errors="replace"))
    if code == TOOBIG:
        limit = rates.limit_tokens if rates else 0
        return errors.InvalidValue(
            f"This request may need {quote.tokens} tokens, more than the limit of {limit} tokens per minute, so it can "
            "never be served. Send a shorter prompt or a lower max_tokens."
        )
    if code == COSTLY:
        return errors.CostLimitExceeded(
            f"This request may cost {format_amount(quote.hold)}, but a call of this key at most "
            f"{format_amount(detail)}. Send a shorter prompt or a lower max_tokens."
        )
    if code == SESSION:
        return errors.SessionBudgetExceeded(
            f"The budget of this session does not cover this request: {format_amount(detail)} is left of it today"
        )
    wait = detail / 1_000_000
    limited: errors.TooManyRequests
    if code == CONCURRENCY:
        limited = errors.ConcurrencyLimited()
    elif code == RPM:
        limited = errors.RequestRateLimited(retry_after=wait)
    elif code == TPM:
        limited = errors.TokenRateLimited(retry_after=wait)
    else:
        return PLAIN_REFUSALS.get(code, errors.InvalidApiKey)()
    if rates is not None:
        limited.rate_headers = rates.headers()
    limited.scope = scope
    return limited
