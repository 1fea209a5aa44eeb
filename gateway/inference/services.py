"""The parts of a worker that handlers and the pipeline use; the composition root provides them."""

from __future__ import annotations

from typing import Protocol

from gateway.accounts.authenticator import Authenticator
from gateway.accounts.sealed_text import SealedText
from gateway.catalog import Catalog
from gateway.config.settings import Settings
from gateway.history.usage_question import UsageHistory
from gateway.hooks.call_hooks import CallHooks
from gateway.hooks.foreign_keys import ForeignKeys
from gateway.ids import Ids
from gateway.inference.active_calls import ActiveCalls
from gateway.inference.call import Call
from gateway.inference.disconnects import Disconnects
from gateway.inference.idempotency import Idempotency
from gateway.inference.media_fetching import MediaFetching
from gateway.inference.paced_steps import PacedSteps
from gateway.inference.sessions import SessionIds
from gateway.inference.settlement import Settlement
from gateway.inference.sinks import KeepAlive
from gateway.inference.unreadable_prices import UnreadablePrices
from gateway.ledger import Ledger
from gateway.ledger.caller_addresses import CallerAddresses
from gateway.ledger.import_hints import ImportHints
from gateway.ledger.price_tables import PriceTables
from gateway.ledger.refusal_counts import RefusalCounts
from gateway.log import AccessLog
from gateway.metrics import Metrics
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Router
from gateway.store import Store
from gateway.telemetry.tracing import Traces
from gateway.uploads.body_budgets import BodyBudgets


class Overload(Protocol):
    """Whether this worker is overloaded, or looks for it rarely because it has no work."""

    @property
    def high(self) -> bool: ...

    @property
    def asleep(self) -> bool: ...

    def wake(self) -> None: ...


class Clock(Protocol):
    """Ends calls at their deadlines."""

    def begin(self, call: Call) -> None:
        """The call was admitted."""

    def opens(self, call: Call) -> None:
        """The call waits for the first chunk of a stream."""

    def relays(self, call: Call) -> None:
        """The stream of the call has its first chunk."""


class Services(Protocol):
    """Read them at each request: a reload replaces some of them."""

    settings: Settings
    catalog: Catalog
    router: Router
    store: Store
    bodies: BodyBudgets
    ids: Ids
    auth: Authenticator
    ledger: Ledger
    price_tables: PriceTables
    import_hints: ImportHints
    dispatcher: Dispatcher
    settlement: Settlement
    active_calls: ActiveCalls
    disconnects: Disconnects
    idempotency: Idempotency
    sessions: SessionIds
    sealed_text: SealedText
    paced_steps: PacedSteps
    keep_alive: KeepAlive
    metrics: Metrics
    access_log: AccessLog
    traces: Traces
    refusals: RefusalCounts
    caller_addresses: CallerAddresses
    unreadable_prices: UnreadablePrices
    media_fetching: MediaFetching
    call_hooks: CallHooks
    foreign_keys: ForeignKeys

    @property
    def clock(self) -> Clock: ...
    @property
    def overload(self) -> Overload: ...
    @property
    def usage_history(self) -> UsageHistory: ...
