"""The group and the prices of each account, as this worker knows them.

Both are stored in Redis alone. The admission script compares what the worker used with what is stored, and answers
REGROUP or REPRICE if they differ, so a stale cache decides nothing. The account's hash has the field `group`, a field
`p:MODEL` with the JSON of each price of its own (see `own_price_form`), and `pe`, the epoch of these prices: a text
that changes with each of them and stays when all of them are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from gateway.amounts import NANO, format_amount, parse_amount, parse_factor
from gateway.billing.price_terms import LIST_PRICES, OwnPrice, PriceTerms
from gateway.config.settings import AmountSettings
from gateway.errors import GatewayError, InternalError
from gateway.ledger.limits import DEFAULT_GROUP, GroupTable
from gateway.ledger.script_batcher import own_error
from gateway.ledger.scripts import Links, load_script, slot
from gateway.store.command import text_fields

REMEMBERED = 50_000  # accounts that a worker caches
OWN_PRICES = 20_000  # own prices of all accounts that a worker caches
FACTOR = "factor"  # in the stored form, beside names of `AmountSettings`

_READ = load_script("own_prices")
_decoder = msgspec.json.Decoder(dict[str, str])


class Known(Struct):
    """An account in the cache."""

    group: str
    terms: PriceTerms
    groups: GroupTable  # whose factor is in `terms`
    head: str = ""  # the first arguments of an admission, once there was one


class AccountTerms:
    """Caches the group and the prices of accounts; an account that is not cached is in the default group."""

    def __init__(self, links: Links, groups: GroupTable) -> None:
        self._links = links
        self._known: dict[str, Known] = {}
        self._own = 0  # own prices in the cache
        self._reads: dict[str, asyncio.Task[None]] = {}
        self.groups = groups

    @property
    def groups(self) -> GroupTable:
        """The limits and the price factor of each group."""
        return self._groups

    @groups.setter
    def groups(self, groups: GroupTable) -> None:
        self._groups = groups
        self._default = self._make(DEFAULT_GROUP, "", {})

    def of(self, account: str) -> Known:
        """The group and the prices of an account; the prices are LIST_PRICES itself if nothing differs from them."""
        known = self._known.get(account)
        if known is None:
            return self._default
        if known.groups is not self._groups:
            known.terms, known.groups = self._terms(known.group, known.terms.epoch, known.terms.own), self._groups
            known.head = ""
        return known

    def regroup(self, account: str, group: str) -> None:
        """The account is in `group`."""
        terms = self.of(account).terms
        self._remember(account, self._make(group, terms.epoch, terms.own))

    async def read(self, account: str) -> None:
        """Read the account's own prices; calls that wait for the same account share one read."""
        task = self._reads.get(account)
        if task is None:
            task = self._reads[account] = asyncio.get_running_loop().create_task(self._read(account))
            task.add_done_callback(lambda task: self._ended(account, task))
        try:
            await asyncio.shield(task)
        except GatewayError as error:
            raise own_error(error) from None

    async def _read(self, account: str) -> None:
        group, epoch, forms = await read_own_prices(self._links, account)
        try:
            own = {model: parse_own_price(form) for model, form in forms.items()}
        except ValueError as error:
            raise InternalError(detail=f"a price of account {account} is unreadable: {error}") from None
        self._remember(account, self._make(group, epoch, own))

    def _ended(self, account: str, task: asyncio.Task[None]) -> None:
        del self._reads[account]
        if not task.cancelled():
            task.exception()  # every caller may have left

    def _make(self, group: str, epoch: str, own: Mapping[str, OwnPrice]) -> Known:
        return Known(group, self._terms(group, epoch, own), self._groups)

    def _terms(self, group: str, epoch: str, own: Mapping[str, OwnPrice]) -> PriceTerms:
        factor = self._groups.of(group).price_factor
        if factor == NANO and not epoch:
            return LIST_PRICES
        return PriceTerms(epoch, OwnPrice(factor) if factor != NANO else None, own)

    def _remember(self, account: str, known: Known) -> None:
        self._forget(account)
        more = len(known.terms.own)
        while self._known and (len(self._known) >= REMEMBERED or self._own + more > OWN_PRICES):
            self._forget(next(iter(self._known)))
        self._known[account] = known
        self._own += more

    def _forget(self, account: str) -> None:
        known = self._known.pop(account, None)
        if known is not None:
            self._own -= len(known.terms.own)


async def read_own_prices(links: Links, account: str) -> tuple[str, str, dict[str, dict[str, str]]]:
    """Group, epoch, and the stored form of each own price by model, at one moment; empty without such an account."""
    name = slot(account)
    group, epoch, fields = await links.link(name).eval(_READ, [name], [], repeatable=True)
    return group.decode(), epoch.decode(), {model: _decoded(text) for model, text in text_fields(fields).items()}


def own_price_form(own: OwnPrice) -> dict[str, str]:
    """The amounts and the factor as decimal texts; stored as a JSON object."""
    form = {name: format_amount(amount) for name, amount in own.amounts}
    if own.factor != NANO or not form:
        form[FACTOR] = format_amount(own.factor)
    return form


def parse_own_price(form: Mapping[str, str]) -> OwnPrice:
    """The price of a stored form; ValueError if it has unknown names or no amounts, as that of a newer version may."""
    amounts = {name: text for name, text in form.items() if name != FACTOR}
    if unknown := amounts.keys() - set(AmountSettings.__struct_fields__):
        raise ValueError(f"unknown amounts {sorted(unknown)}")
    own = tuple(sorted((name, parse_amount(text)) for name, text in amounts.items()))
    return OwnPrice(parse_factor(form.get(FACTOR, "1")), own)


def _decoded(text: str) -> dict[str, str]:
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError:
        return {"unreadable": text}
