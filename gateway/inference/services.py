"""What handlers and the pipeline need of a worker; the composition root has it all."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from gateway.accounts.authenticator import Authenticator
from gateway.catalog import Catalog
from gateway.config.settings import Settings
from gateway.ids import Ids
from gateway.inference.active_calls import ActiveCalls
from gateway.inference.idempotency import Idempotency
from gateway.inference.settlement import Settlement
from gateway.inference.sinks import KeepAlive
from gateway.ledger import Ledger
from gateway.log import AccessLog
from gateway.metrics import Metrics
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Router
from gateway.store import Store


class Overload(Protocol):
    """Whether this worker has more than it can do."""

    @property
    def high(self) -> bool: ...


class Services(Protocol):
    """Read anew with each request: a reload replaces some of them."""

    settings: Settings
    catalog: Catalog
    router: Router
    store: Store
    spools: Path  # where uploads are kept while they are read

    @property
    def ids(self) -> Ids: ...
    @property
    def auth(self) -> Authenticator: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def settlement(self) -> Settlement: ...
    @property
    def active_calls(self) -> ActiveCalls: ...
    @property
    def idempotency(self) -> Idempotency: ...
    @property
    def keep_alive(self) -> KeepAlive: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def access_log(self) -> AccessLog: ...
    @property
    def overload(self) -> Overload: ...
