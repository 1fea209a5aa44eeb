"""The group and the prices of each account, as this worker knows them.

Both are stored in Redis alone. The admission script compares what the worker used with what is stored, and answers
REGROUP or REPRICE if they differ, so a stale cache decides nothing. The account's hash has the field `group`, a field
`p:MODEL` with the JSON of each price of its own (see `own_price_form`), and `pe`, the epoch of these prices: a text
that changes with each of them and stays when all of them are removed. A price that cannot be read, such as one of a
newer version, becomes an `UnreadablePrice`: it refuses the calls of its model, and the other prices are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from gateway.amounts import NANO, format_amount, parse_amount, parse_factor
from gateway.billing.price_terms import LIST_PRICES, OwnPrice, PriceTerms, UnreadablePrice
from gateway.config.settings import AmountSettings
from gateway.errors import GatewayError
from gateway.ledger.limits import DEFAULT_GROUP, GroupTable
from gateway.ledger.script_batcher import own_error
from gateway.ledger.scripts import load_script
from gateway.store.links import Links, slot

REMEMBERED = 50_000  # accounts that a worker caches
OWN_PRICES = 20_000  # own prices of all accounts that a worker caches
FACTOR = "factor"  # in the stored form, beside names of `AmountSettings`
UNREADABLE = "unreadable"  # in the form of a text that is no JSON object of texts
SHOWN = 200  # bytes of an unreadable text that an operator sees

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
        own = {model: read_own_price(form) for model, form in forms.items()}
        self._remember(account, self._make(group, epoch, own))

    def _ended(self, account: str, task: asyncio.Task[None]) -> None:
        del self._reads[account]
        if not task.cancelled():
            task.exception()  # every caller may have left

    def _make(self, group: str, epoch: str, own: Mapping[str, OwnPrice | UnreadablePrice]) -> Known:
        return Known(group, self._terms(group, epoch, own), self._groups)

    def _terms(self, group: str, epoch: str, own: Mapping[str, OwnPrice | UnreadablePrice]) -> PriceTerms:
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
    pairs = zip(fields[::2], fields[1::2], strict=True)
    forms = {model.decode(errors="replace"): _decoded(text) for model, text in pairs}
    return group.decode(errors="replace"), epoch.decode(errors="replace"), forms


def own_price_form(own: OwnPrice) -> dict[str, str]:
    """The amounts and the factor as decimal texts; stored as a JSON object."""
    form = {name: format_amount(amount) for name, amount in own.amounts}
    if own.factor != NANO or not form:
        form[FACTOR] = format_amount(own.factor)
    return form


def read_own_price(form: Mapping[str, str]) -> OwnPrice | UnreadablePrice:
    """The price of a stored form, or what takes its place."""
    try:
        return parse_own_price(form)
    except ValueError as error:
        return UnreadablePrice(str(error), hash(tuple(sorted(form.items()))))


def parse_own_price(form: Mapping[str, str]) -> OwnPrice:
    """The price of a stored form; ValueError names what is wrong with it, without the stored text."""
    if not form or UNREADABLE in form:
        raise ValueError("it is no object with amounts or a factor as texts")
    amounts = {name: text for name, text in form.items() if name != FACTOR}
    if unknown := amounts.keys() - set(AmountSettings.__struct_fields__):
        raise ValueError(f"it has {len(unknown)} unknown amounts, which a newer version may know")
    own = tuple(sorted((name, _amount(name, text)) for name, text in amounts.items()))
    try:
        return OwnPrice(parse_factor(form.get(FACTOR, "1")), own)
    except ValueError:
        raise ValueError("its factor is no number from 0 to 1000 with at most nine places") from None


def _amount(name: str, text: str) -> int:
    try:
        amount = parse_amount(text)
    except ValueError:
        amount = -1
    if amount < 0:
        raise ValueError(f"its amount {name!r} is no number from 0 with at most nine places")
    return amount


def _decoded(text: bytes) -> dict[str, str]:
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError):
        return {UNREADABLE: text[:SHOWN].decode(errors="replace")}
