"""Errors of a gateway that cannot serve now: 503, and another try may succeed."""

from __future__ import annotations

from collections import Counter
from enum import Enum

from gateway.errors.base import GatewayError


class Unavailable(GatewayError):
    """The gateway cannot serve now; another try may succeed. Never 429, which means a limit of the caller."""

    status = 503
    type = "service_unavailable_error"
    default_code = "service_unavailable"
    default_message = "The service is temporarily unavailable"
    should_retry = True
    default_wait = 1.0


class StoreFate(Enum):
    """Whether a failed store command was executed; the values are texts for the log."""

    NEVER_SENT = "never sent"
    REFUSED = "refused"  # the server did not execute it
    UNKNOWN = "sent, fate unknown"  # it may have been executed


#: The errors of this process by their fate, since the last report of its metrics.
STORE_ERRORS: Counter[StoreFate] = Counter()


class StoreUnavailable(Unavailable):
    """The store with the keys and balances is unreachable; `fate` says whether the command may have been executed."""

    def __init__(
        self, message: str | None = None, *, detail: str | None = None, fate: StoreFate = StoreFate.UNKNOWN
    ) -> None:
        super().__init__(message, detail=detail)
        self.fate = fate
        STORE_ERRORS[fate] += 1

    def log_text(self) -> str:
        return f"{self.fate.value}: {self.detail}" if self.detail else self.fate.value


class DatabaseUnavailable(Unavailable):
    """The SQL database with the history is unreachable, or its disk is full."""


class DatabaseRefused(DatabaseUnavailable):
    """This program cannot use the database: it is newer, belongs to another store, or cannot be opened."""


class Draining(Unavailable):
    """This process shuts down."""

    close_connection = True


class Overloaded(Unavailable):
    """The event loop of this worker is late, or its memory is full. The request is refused before any work for it."""

    default_code = "server_is_overloaded"
    default_message = "The gateway is overloaded; try again in a moment"
    limit = "load"
    scope = "gateway"


class NoHealthyUpstream(Unavailable):
    """No target of the model is available."""

    default_message = "No healthy upstream for this model"
    limit = "circuit"
    scope = "upstream"


class PriceUnreadable(GatewayError):
    """The own price of the account for this model cannot be read. Waiting does not help: it must be set again."""

    default_code = "price_unreadable"
    default_message = "The price of this model for your account cannot be read; its operator has to set it again"
    default_param = "model"
    should_retry = False
