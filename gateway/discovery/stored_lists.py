"""The lists of providers in the store, which all workers and gateways read: one asks, and all serve the same models.

`discovery` is a hash with the state of each list, some hundred bytes. The list itself is a text of its own, which is
read when the state names another version. `discovery:turn:…` exists while nobody needs to ask: the store's clock ends
it. A list belongs to a provider with its options, so that another address never serves the models of the one before.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256

import msgspec
from msgspec import Raw, Struct, structs

from gateway.config.settings import Endpoint, ProviderSettings
from gateway.store import Store

STATES = "discovery"
LIST = "discovery:list:"
TURN = "discovery:turn:"
ASKING = 90_000  # ms that a question may take before another worker asks
AFTER_FAILURE = 60.0  # seconds to the next question, or the usual ones if these are less
WITHOUT_LIST = 15.0  # the same while there is no good list yet
SPARE = 3600  # seconds for which the store keeps a list that is used no more
PRICES_KEPT = 90 * 86_400.0  # seconds for which the prices of a list bound those of the next one, at least
FORGOTTEN = PRICES_KEPT  # seconds without a question after which a state is removed
MOST_LISTS = 100  # lists in the store, beyond those for which somebody asks
UNASKED = 8 * 86_400.0  # seconds without a question that say that nobody asks: more than the longest `discover_every`
LENGTH = 12  # characters of the hash of a provider's options


class PastPrice(Struct, frozen=True, array_like=True):
    """A price of the provider's list that another one has replaced."""

    since: str  # YYYY-MM-DD
    amounts: dict[str, int]


class StoredModel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model of a list, checked. `problem` says why the list's price cannot be used."""

    name: str
    endpoints: tuple[Endpoint, ...] = ()
    context_window: int | None = None
    max_output_tokens: int | None = None
    created: int | None = None
    amounts: dict[str, int] | None = None  # of the price in the list, nano units
    since: str = ""  # the day on which this price was listed first
    earlier: tuple[PastPrice, ...] = ()  # the newest first
    problem: str = ""
    detail: str = ""
    left_at: float = 0.0  # Unix seconds since which the list lacks it; it is kept for its price


class StoredList(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last good list of a provider."""

    models: tuple[StoredModel, ...] = ()
    gone: tuple[StoredModel, ...] = ()  # models that have left, so that a price cannot jump while they are away
    version: str = ""  # that of the state which was written after it


class ListState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the questions to a provider ended."""

    version: str = ""  # of the last good list; empty before the first
    at: float = 0.0  # Unix seconds of the last good answer
    failed_at: float = 0.0  # of the last failure since
    error: str = ""
    listed: int = 0  # models in the list
    left_out: dict[str, int] = {}  # entries that are no models, by reason


class _Pieces(Struct, kw_only=True, omit_defaults=True):
    """A list whose models are decoded later, each by itself."""

    models: list[Raw] = []
    gone: list[Raw] = []
    version: str = ""


_states = msgspec.json.Decoder(ListState)
_pieces = msgspec.json.Decoder(_Pieces)
_models = msgspec.json.Decoder(StoredModel)
NO_LIST = StoredList()
NEVER_ASKED = ListState()


def list_id(name: str, provider: ProviderSettings) -> str:
    """The name of a list: of a provider with these options, none of which can be read from it."""
    options = [provider.plugin, provider.options, provider.credentials]
    return f"{name}:{sha256(msgspec.json.encode(options, order='sorted')).hexdigest()[:LENGTH]}"


async def read_states(store: Store) -> dict[str, ListState]:
    """The state of each list. GatewayError."""
    found = await store.link(STATES).call("HGETALL", STATES)
    states = {}
    for name, text in found.items():
        try:
            states[name.decode()] = _states.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # of a release with another form
    return states


async def read_list(store: Store, name: str) -> StoredList | None:
    """A list; None if the store has none, or one of another release. GatewayError."""
    text = await store.link(LIST + name).call("GET", LIST + name)
    try:
        return await asyncio.to_thread(decoded, text) if text is not None else None
    except msgspec.MsgspecError:
        return None


def decoded(text: bytes) -> StoredList:
    """A list of some megabytes, model by model: in one call, msgspec would hold up the event loop from a thread too."""
    found = _pieces.decode(text)
    models, gone = (tuple([_models.decode(one) for one in some]) for some in (found.models, found.gone))
    return StoredList(models=models, gone=gone, version=found.version)


def is_same(found: StoredList, before: StoredList | None, version: str) -> bool:
    """Whether the list before has these models under this version; the store may have failed before it was named."""
    return before is not None and before.version == version and structs.replace(found, version=version) == before


def prices_kept(provider: ProviderSettings) -> float:
    """Seconds for which the prices of a list, and of a model that has left it, bound what the list says next."""
    return max(provider.keeps_list, PRICES_KEPT)


async def write_list(store: Store, name: str, found: StoredList, state: ListState, *, keep: float) -> None:
    """Write a list for `keep` seconds, then the state that names it. GatewayError."""
    raw = msgspec.json.encode(structs.replace(found, version=state.version))
    await store.link(LIST + name).call("SET", LIST + name, raw, "EX", int(keep) + SPARE)
    await write_state(store, name, state)


async def write_state(store: Store, name: str, state: ListState) -> None:
    """Write the state of a list. GatewayError."""
    await store.link(STATES).call("HSET", STATES, name, msgspec.json.encode(state))


async def forget_states(store: Store, states: dict[str, ListState], now: float) -> None:
    """Remove lists that nobody has asked for in a long time, and the oldest if there are many. GatewayError."""
    asked = {name: max(state.at, state.failed_at) for name, state in states.items()}
    newest = sorted(asked, key=asked.__getitem__, reverse=True)
    old = [name for name in newest if asked[name] < now - FORGOTTEN]
    old += [name for name in newest[MOST_LISTS:] if now - FORGOTTEN <= asked[name] < now - UNASKED]
    for name in old:
        await store.link(LIST + name).call("DEL", LIST + name)
    if old:
        await store.link(STATES).call("HDEL", STATES, *old)


async def take_turn(store: Store, name: str) -> bool:
    """Whether the caller is to ask now; the others wait. GatewayError."""
    key = TURN + name
    return await store.link(key).call("SET", key, "1", "NX", "PX", ASKING) is not None


async def take_early_turn(store: Store, name: str, early: str) -> bool:
    """Whether the caller is to ask although the next question is not due; `early` names its cause. GatewayError."""
    if not await take_turn(store, early):
        return False
    await end_turn(store, name, ASKING / 1000)
    return True


async def end_turn(store: Store, name: str, seconds: float) -> None:
    """The next question comes after so many seconds. GatewayError."""
    key = TURN + name
    await store.link(key).call("SET", key, "1", "PX", int(seconds * 1000))
