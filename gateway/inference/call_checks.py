"""The `check_call` hooks of a model: they see a request before money is held, and may refuse or replace it.

A replaced request is decoded again from its new body, as if the caller had sent it. So it is validated, quoted and held
like any other, and what an upstream gets of it, in whichever dialect, is made of the new body alone. The digest of an
Idempotency-Key stays that of the caller's own body. Sharp edge: content that is fetched by address is fetched later.
"""

from __future__ import annotations

from functools import partial
from operator import methodcaller
from typing import Any

from gateway.errors import GatewayError
from gateway.hooks.runner import PASSED, REPLACED, HookFailed
from gateway.inference.call_hold import check_permission
from gateway.inference.call_quote import find_model
from gateway.inference.call_stages import CallRequest
from gateway.inference.endpoint import Endpoint, Received
from gateway.inference.hooked_call import HookedCall, body_of
from gateway.inference.services import Services
from gateway.inference.tags import read_tags

#: Attributes of requests that say how much of an answer is asked for; a hook may only lower them.
AMOUNTS = ("max_output", "choices", "n", "count")

Replaced = tuple[Any, Any]  # the new body, and the request decoded from it


async def check_call(asked: CallRequest, endpoint: Endpoint[Any], services: Services, received: Received) -> bool:
    """Run the hooks of the request's model; whether `asked.content` has changed. Raises the error of a refusal.

    The key is checked first, so that no plugin sees a request with a revoked key.
    """
    model = asked.model = find_model(asked.content.model, services)
    runners = services.call_hooks.of("check_call", model.hooks)
    if runners:  # the other hooks run after the admission, which checks the key
        await check_permission(asked, services)
    names, is_replaced = services.settings.server.tags, False
    tags = read_tags(names, received.tags, getattr(asked.content, "metadata", None)) if names else None
    hooked = asked.hooked = HookedCall(
        endpoint,
        services,
        request_id=asked.request_id,
        key=asked.key,
        model=model.name,
        body=_body(received),
        content=asked.content,
        tags=tags,
        cache_control=received.headers.get("Cache-Control") or "",
    )
    for runner in runners:
        try:
            replaced, outcome = await runner.run(
                "check_call",
                methodcaller("check_call", hooked.view()),
                partial(_accepted, hooked, endpoint, asked, services),
                account=asked.key.account,
                digest=hash(asked.request_id),
            )
        except HookFailed as failure:
            hooked.failed(runner, failure)
            continue
        except GatewayError:
            hooked.refused(runner)
            raise
        hooked.note(runner, outcome)
        if replaced is not None:
            is_replaced = True
            hooked.body, hooked.content = replaced
            asked.content = hooked.content
            if isinstance(hooked.body, bytes):
                asked.body_size = len(hooked.body)
    return is_replaced


def _body(received: Received) -> Any:
    """The body from which the request was decoded."""
    body = received.body
    return (body.without_surrogates() if body.has_lone_surrogates else None) or body.take()


def _accepted(
    hooked: HookedCall, endpoint: Endpoint[Any], asked: CallRequest, services: Services, found: Any
) -> tuple[Replaced | None, str]:
    """What a hook returned: nothing, or another body; ValueError if it is not possible."""
    if found is None:
        return None, PASSED
    body, before = body_of(found, hooked.body), hooked.content
    most = services.settings.server.limits.max_json_body
    if isinstance(body, bytes) and len(body) > most:
        raise ValueError(f"its request has {len(body)} bytes, of at most {most}")
    try:
        content = endpoint.decode(body, asked.key.account, services)
    except GatewayError as error:
        raise ValueError(f"its request is not valid: {error.message}") from None
    if content.model != before.model:
        raise ValueError("it has changed the model")
    if endpoint.wants_stream(content) != endpoint.wants_stream(before):
        raise ValueError("it has changed whether the answer is a stream")
    for name in AMOUNTS:
        if _is_more(getattr(content, name, None), getattr(before, name, None)):
            raise ValueError(f"it asks for more than its caller: {name}")
    return (body, content), REPLACED


def _is_more(new: Any, old: Any) -> bool:
    if new is None or old is None:
        return new is None and old is not None  # without a limit
    return isinstance(new, int) and isinstance(old, int) and new > old
