"""Whose call a provider serves: for its own log, for a header or a field of its upstream, for prices of its own.

::

    call = current_call()
    if call is not None:
        headers["x-customer"] = call.account

It is known in the task of the call and in the tasks that it starts. In a realtime session it is the call of the
response that runs or comes next. Sharp edge: all of it names the caller, so what is sent to an upstream is a decision
about privacy.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gateway.http_client.forwarded_headers import forwarded_headers_now
from gateway.http_client.send_state import current


class CurrentCall(Struct, frozen=True):
    """The call that this task serves; a text is empty where there is none."""

    request_id: str  # as in the header `x-request-id` and in the ledger
    account: str
    key: str  # the id of the key, not its text
    user: str  # the id of the user who has the key; empty for a service key
    model: str  # the requested model, by its public name
    session: str  # the id of the session
    tags: Mapping[str, str]  # the caller's labels, as far as they are configured
    headers: Mapping[
        str, str
    ]  # of the caller: the trace context, and those that any provider's `forward_headers` names


def current_call() -> CurrentCall | None:
    """The call that this task serves; None outside of a call, as in `start` or when a list of models is read."""
    state = current()
    admitted, quote = state.admitted, state.quote
    if admitted is None or quote is None:
        return None
    key, forwarded = admitted.key, forwarded_headers_now()
    headers = {**forwarded.named, **forwarded.everywhere}
    return CurrentCall(
        admitted.request_id, key.account, key.id, key.user, admitted.model, quote.session, quote.tags or {}, headers
    )
