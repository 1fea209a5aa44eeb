"""One governed call from admission to settlement: what was asked, held, tried, delivered, and what it came to.

The handler fills it in as the walk goes on; `Settlement` turns it into an outcome, a record and a metric.
"""

from __future__ import annotations

import time

from gateway.auth import ApiKey
from gateway.catalog import Model
from gateway.ledger import Hold
from gateway.price import Price
from gateway.routing import Candidate
from gateway.usage import Usage


class Call:
    """Mutable on purpose: one per request, owned by its handler. Times are monotonic seconds."""

    def __init__(
        self,
        request_id: str,
        *,
        endpoint: str,
        key: ApiKey,
        model: Model,
        price: Price,
        hold: Hold,
        prompt: Usage,
        worst_case: Usage,
        ceiling: tuple[int, int],
        stream: bool,
        service_tier: str | None,
        started: float,
    ) -> None:
        self.request_id = request_id
        self.endpoint = endpoint
        self.key = key
        self.model = model
        self.price = price  # the one that held at admission
        self.hold = hold
        self.prompt = prompt  # estimated usage of the prompt, no output
        self.worst_case = worst_case  # what the hold was computed from
        self.ceiling_in, self.ceiling_out = ceiling  # tokens beyond which an upstream's count is impossible
        self.stream = stream
        self.started = started
        self.status = 200
        self.outcome = "ok"
        self.attempts: list[Candidate] = []
        self.first_token: float | None = None  # seconds after the start
        self.chunks = 0
        self.upstream_waited = 0.0  # seconds spent on upstreams
        self.service_tier = service_tier  # what is billed: as asked until the upstream has said what it used
        self.settled = False

    @property
    def provider(self) -> str:
        """The provider that served, or was tried last."""
        return self.attempts[-1].target.provider if self.attempts else ""

    def cost(self, usage: Usage) -> int:
        """Nano units that `usage` costs in this call."""
        return self.price.cost(usage, service_tier=self.service_tier)

    def since_start(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self.started
