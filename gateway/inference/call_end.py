"""How a call ends: its error is sent, its use is settled once, its Idempotency-Key is closed.

The pipeline calls these functions at the end of the call's task. `CallClock` calls them for a call whose task does not
end. Sharp edge: after that the task may go on, so nothing here has an effect on an abandoned call.
"""

from __future__ import annotations

from msgspec.structs import replace

from gateway import errors
from gateway.errors.facts import RefusalFacts
from gateway.inference.call import Call
from gateway.inference.idempotency import Claim
from gateway.inference.services import Services
from gateway.log import gateway_log
from gateway.plugins.upstream_errors import request_id_of


def fail(call: Call, error: errors.GatewayError, services: Services) -> None:
    """End the answer with `error`: as an HTTP status if nothing was sent yet, else as a frame of the stream."""
    if call.abandoned:
        return
    endpoint = call.endpoint
    if isinstance(error, errors.ContextLengthExceeded | errors.ContentFiltered):
        error.param = endpoint.prompt_param  # a provider does not know the endpoint it serves
        if isinstance(error, errors.ContentFiltered):
            error.code = endpoint.filter_code
    status = call.reply.error_form.status(error)
    call.outcome, call.status, call.detail = error.code or "error", status, error.log_text()
    facts = RefusalFacts.of(error)  # one error may end many calls
    call.error = facts if facts.upstream_request_id else replace(facts, upstream_request_id=_upstream_request_id(call))
    if error.limit:
        services.metrics.limited(call.model.name, error.limit, error.scope)
        if error.limit == "balance":
            services.import_hints.short(call.key.account)
    if call.committed:
        assert call.sink is not None
        call.sink.fail(endpoint.error_frame(error, call))
    else:
        call.reply.send_error(error)


def _upstream_request_id(call: Call) -> str:
    """The id of the last answer of an upstream; an error inside its stream does not repeat it."""
    for answer in reversed(call.sending.all_answers()):
        if answer.status:
            return request_id_of(answer.headers)
    return ""


def fail_stopped(call: Call, services: Services) -> None:
    """End the answer of a call that was stopped; without an error if its caller has left."""
    error = call.cut_by or call.sending.late
    if error is not None:
        fail(call, error, services)


def settle(call: Call, services: Services) -> None:
    """Charge what was used, once; called as soon as the amount is known and again at the end."""
    if call.settled:
        return
    try:
        usage = None if call.client_gone and call.model.disconnect == "void" else call.usage()
    except Exception as error:
        # A bug in counting must not lose the charge: the estimate of the prompt is charged instead.
        gateway_log.error("%s: usage failed", call.request_id, exc_info=error)
        usage = call.quote.prompt
    if call.client_gone:
        call.outcome, call.status = "client_closed", 499
    services.active_calls.discard(call.request_id)
    services.metrics.ended(call.endpoint.name)
    services.settlement.settle(call, usage)
    services.disconnects.ended(call)


def close_claim(call: Call, claim: Claim) -> None:
    """Store or free the Idempotency-Key of a call that has ended."""
    claim.close(call.reply.headers, charged=call.record is not None and call.record.cost > 0)


def abandon(call: Call, services: Services) -> None:
    """Answer and settle a call whose task was cancelled and does not end; its upstream is closed."""
    fail_stopped(call, services)
    call.abandoned = call.detached = True
    if call.sink is not None:
        call.sink.close()
    if call.encoder is not None:
        try:
            call.endpoint.stream_ended(call)
        except Exception as error:
            # As in `settle`: a bug there must not keep the hold.
            gateway_log.error("%s: the end of its stream failed", call.request_id, exc_info=error)
    settle(call, services)
    if call.claim is not None:
        close_claim(call, call.claim)
    for answer in call.sending.all_answers():
        answer.close()
    if call.caller is not None:
        call.caller.call_ended()
