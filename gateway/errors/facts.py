"""What an error tells the operator beside its code and detail, without the error and its traceback."""

from __future__ import annotations

from msgspec import Struct

from gateway.errors.base import GatewayError


class RefusalFacts(Struct, frozen=True):
    """The fields of `GatewayError` for the access log and the metrics."""

    limit: str = ""
    scope: str = ""
    upstream_request_id: str = ""

    @classmethod
    def of(cls, error: GatewayError) -> RefusalFacts:
        """The facts of an error."""
        return cls(error.limit, error.scope, error.upstream_request_id)


NO_FACTS = RefusalFacts()
