"""The access line of a request, and its count in the metrics if no settlement counted it.

Functions over the handler, not methods: they run once at the end of a request, and only read it.
"""

from __future__ import annotations

import time
from typing import Protocol

from gateway.amounts import format_amount
from gateway.api.refusal_line import refusal_line
from gateway.api.request_metadata import RequestMetadata
from gateway.billing.call_record import CallRecord
from gateway.billing.usage import Usage
from gateway.errors.facts import RefusalFacts
from gateway.http_server.client_address import client_address, networks
from gateway.http_server.exchange import Exchange
from gateway.http_server.head import RequestHeaders
from gateway.http_server.reply import ResponseWriter
from gateway.inference.call_stages import CallRequest
from gateway.inference.services import Services
from gateway.ledger.api_key import ApiKey
from gateway.log import AccessLine
from gateway.metrics import UNKNOWN


class EndedRequest(Protocol):
    """What is read of a handler whose request has been answered."""

    services: Services
    exchange: Exchange
    headers: RequestHeaders
    metadata: RequestMetadata
    method: str
    path: str
    endpoint_name: str
    outcome: str
    detail: str
    facts: RefusalFacts

    @property
    def reply(self) -> ResponseWriter: ...
    @property
    def request_id(self) -> str: ...
    @property
    def key(self) -> ApiKey | None: ...
    @property
    def asked(self) -> CallRequest | None: ...


def log_request(request: EndedRequest) -> CallRecord | None:
    """Count the request, and write its access line; the record of its settled call, if it has one."""
    call = request.asked.call if request.asked is not None else None
    record = call.record if call is not None else None
    if record is None:
        _count(request)
    log = request.services.access_log
    if log.enabled:
        log.write(_plain_line(request) if record is None else _line_of_call(request, record))
    return record


def address_of(request: EndedRequest) -> str:
    """The address of the client, behind the proxies that the operator trusts."""
    forwarded = request.headers.get("X-Forwarded-For") or ""
    trusted = networks(request.services.settings.server.trusted_proxies)
    return client_address(request.exchange.context.remote_ip, forwarded, trusted)


def _count(request: EndedRequest) -> None:
    services, key, facts = request.services, request.key, request.facts
    served = _served_model(request.asked)
    model = served or UNKNOWN
    services.metrics.refused(request.endpoint_name, model, request.outcome, time.monotonic() - request.reply.started)
    if request.reply.status >= 400:
        account, key_id = (key.account, key.id) if key is not None else ("", "")
        services.refusals.count(account, key_id, served if key_id else "", request.outcome)
    if request.asked is not None and request.asked.trace is not None:
        request.asked.trace.settled(_refused_call(request, model), started=request.reply.started)
    if facts.limit:
        services.metrics.limited(model, facts.limit, facts.scope)
        if facts.limit == "balance" and key is not None:
            services.import_hints.short(key.account)


def _refused_call(request: EndedRequest, model: str) -> CallRecord:
    """The record of a request that was refused before it was a call."""
    key, duration = request.key, time.monotonic() - request.reply.started
    return CallRecord(
        request_id=request.request_id,
        endpoint=request.endpoint_name,
        account=key.account if key is not None else "",
        key=key.id if key is not None else "",
        model=model,
        provider="",
        outcome=request.outcome,
        status=request.reply.status,
        usage=Usage(requests=0),
        tokens_in=0,
        tokens_out=0,
        cost=0,
        attempts=0,
        duration=duration,
        first_token=None,
        stream=False,
        user=key.user if key is not None else "",
    )


def _served_model(asked: CallRequest | None) -> str:
    """The name of the catalogue's model that the request is for; "" if it is not known, or not served."""
    return asked.model.name if asked is not None and asked.model is not None else ""


def _requested_model(asked: CallRequest | None) -> str:
    """The name that the caller gave, if it was read."""
    return _served_model(asked) or (getattr(asked.content, "model", None) or "" if asked is not None else "")


def _plain_line(request: EndedRequest) -> AccessLine:
    metadata, key = request.metadata, request.key
    line = AccessLine(
        request_id=request.request_id,
        method=request.method,
        path=request.path,
        status=request.reply.status,
        ms=request.reply.milliseconds(),
        outcome=request.outcome,
        account=key.account if key is not None else "",
        key=key.id if key is not None else "",
        client_request_id=metadata.client_request_id,
        organization=metadata.organization,
        project=metadata.project,
        sdk=metadata.sdk,
        detail=request.detail,
    )
    return line if line.status < 400 else _refused(request, line, request.facts)


def _line_of_call(request: EndedRequest, record: CallRecord) -> AccessLine:
    metadata = request.metadata
    line = AccessLine(  # by position: 1 µs less
        request.request_id,
        request.method,
        request.path,
        record.status,
        request.reply.milliseconds(),
        "",  # the time: `AccessLog.write` sets it
        request.outcome,
        record.account,
        record.key,
        record.model,
        record.provider,
        record.tokens_in,
        record.tokens_out,
        format_amount(record.cost),
        record.attempts,
        record.stream,
        metadata.client_request_id,
        metadata.organization,
        metadata.project,
        metadata.sdk,
        request.detail,
    )
    asked = request.asked
    error = asked.call.error if asked is not None and asked.call is not None else None
    return line if record.status < 400 or error is None else _refused(request, line, error)


def _refused(request: EndedRequest, line: AccessLine, facts: RefusalFacts) -> AccessLine:
    return refusal_line(
        line,
        facts,
        request.headers,
        model=_requested_model(request.asked),
        client=address_of(request),
        unknown_key=request.key is None and line.status == 401,
    )
