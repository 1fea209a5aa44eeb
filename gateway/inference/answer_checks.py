"""The `check_answer` hooks of a model, for whole answers: they see what the caller would get.

They may refuse an answer, or replace it.
The answer was produced, so it is charged also if it is refused. If a hook fails, and the call does not go on without
it, the caller pays nothing. `call.used` has the counts before any hook runs, so none can change what is charged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

import msgspec

from gateway.errors import GatewayError
from gateway.hooks.runner import PASSED, REPLACED, HookFailed, HookRunner
from gateway.inference.call import Call, Hooked
from gateway.inference.hooked_call import encoded
from gateway.inference.services import Services
from gateway.plugins.hook import CheckedAnswer

#: Fields of an answer that are the gateway's, whatever a hook returns.
FIXED = (
    "id", "object", "created", "created_at", "model", "usage", "type", "usageMetadata", "modelVersion", "responseId",
)  # fmt: skip
#: Most bytes of a replaced answer: so much more than the answer had.
GROWTH, MORE = 4, 65_536

_decode = msgspec.json.Decoder().decode


async def check_answer(call: Call, body: bytes, media_type: str, services: Services) -> bytes:
    """The body to send; raises the error of a refusal. An answer that is no text passes."""
    hooked = call.hooked
    if hooked is None or (
        not (is_json := media_type.startswith("application/json")) and not media_type.startswith("text/")
    ):
        return body
    for runner in services.call_hooks.of("check_answer", call.model.hooks):
        answer = CheckedAnswer(partial(_content, body, is_json=is_json))
        found = await run_check(runner, hooked, answer, partial(_accepted, body, is_json=is_json), call=call)
        if found is not None:
            body = found
    return body


async def run_check(
    runner: HookRunner,
    hooked: Hooked,
    answer: CheckedAnswer,
    accept: Callable[[Any], tuple[bytes | None, str]],
    *,
    call: Call,
) -> bytes | None:
    """Run one hook on an answer, or on a part of one; the answer that replaces it, or None."""
    try:
        found, outcome = await runner.run(
            "check_answer",
            methodcaller("check_answer", hooked.view(), answer),
            accept,
            account=call.key.account,
            digest=hash(call.request_id),
        )
    except HookFailed as failure:
        used, call.used = call.used, None  # not charged if it is raised
        hooked.failed(runner, failure)
        call.used = used
        return None
    except GatewayError:
        hooked.refused(runner)
        raise
    hooked.note(runner, outcome)
    return found


def _content(body: bytes, *, is_json: bool) -> Any:
    return _decode(body) if is_json else body.decode(errors="replace")


def _accepted(body: bytes, found: Any, *, is_json: bool) -> tuple[bytes | None, str]:
    """What a hook returned: nothing, or another answer; ValueError if it is not possible."""
    if found is None:
        return None, PASSED
    if is_json:
        if not isinstance(found, dict):
            raise ValueError(f"an answer is replaced by a dict, not by {type(found).__name__}")
        before = _decode(body)
        changed = {name: value for name, value in found.items() if name not in FIXED}
        kept = {name: before[name] for name in FIXED if name in before}
        new = encoded(
            {name: kept.get(name, changed.get(name)) for name in (*before, *changed) if name in kept or name in changed}
        )
    elif isinstance(found, str):
        new = found.encode(errors="replace")
    else:
        raise ValueError(f"a text is replaced by a str, not by {type(found).__name__}")
    if len(new) > GROWTH * len(body) + MORE:
        raise ValueError(f"its answer has {len(new)} bytes in place of {len(body)}")
    return new, REPLACED
