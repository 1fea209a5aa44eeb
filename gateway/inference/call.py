"""One governed call from admission to settlement: what was asked, held, tried, delivered, and what it came to.

The handler fills it in as the walk goes on; `Settlement` turns it into an outcome, a record and a metric.
"""

from __future__ import annotations

import time

from msgspec import Struct

from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.catalog import Model
from gateway.ledger import Hold
from gateway.ledger.api_key import ApiKey
from gateway.routing.router import Candidate


class Call(Struct, eq=False):
    """Mutable on purpose: one per request, owned by its handler. Times are monotonic seconds."""

    request_id: str
    endpoint: str
    key: ApiKey
    model: Model
    price: Price  # the one that held at admission
    hold: Hold
    prompt: Usage  # estimated usage of the prompt, no output
    worst_case: Usage  # what the hold was computed from
    ceiling: tuple[int, int]  # tokens in and out beyond which an upstream's count is impossible
    stream: bool
    service_tier: str | None  # what is billed: as asked until the upstream has said what it used
    started: float
    status: int = 200
    outcome: str = "ok"
    attempts: list[Candidate] = []
    first_token: float | None = None  # seconds after the start
    chunks: int = 0
    upstream_waited: float = 0.0  # seconds spent on upstreams
    settled: bool = False

    @property
    def provider(self) -> str:
        """The provider that served, or was tried last."""
        return self.attempts[-1].target.provider if self.attempts else ""

    @property
    def fallback(self) -> str:
        """Name of the fallback that served, or was tried last; empty where that is the model asked for."""
        name = self.attempts[-1].model.name if self.attempts else self.model.name
        return name if name != self.model.name else ""

    def cost(self, usage: Usage) -> int:
        """Nano units that `usage` costs in this call."""
        return self.price.cost(usage, service_tier=self.service_tier)

    def since_start(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self.started
