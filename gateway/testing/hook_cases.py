"""The conformance kit for hooks: what every hook must do, checked on a live instance.

::

    check_hook(NoShouting, options={"most": 3})
    outcome = run_hook(NoShouting, call=checked_call({"messages": [{"role": "user", "content": "HELLO"}]}))

`check_hook` returns the names of the cases that passed, and raises AssertionError at the first that did not. `run_hook`
runs one hook on one call, answer or credential. Sharp edge: both run their own event loop, so call them from a plain
test function.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.config.secret import Secret, secret_hook
from gateway.errors import GatewayError, UpstreamError
from gateway.http_client.upstream import Upstream
from gateway.plugins.hook import (
    FIXED,
    AnswerCall,
    Authenticate,
    CheckAnswer,
    CheckCall,
    CheckedAnswer,
    CheckedCall,
    Hook,
    Identity,
    KeepAnswer,
    Route,
    RouteOption,
    WholeAnswer,
    hook_capabilities,
)
from gateway.schemas.chat_request import decode_chat_request
from gateway.schemas.chat_response import ChatCompletion, ChatMessage, Choice, CompletionUsage
from gateway.testing.event_loop import STOPS_WITHIN, ends, run

WITHIN = 5.0  # seconds that one run may take here
AT_ONCE = 50
BLOCKED = 0.25  # seconds that a run may hold the event loop
LONG = "word " * 40_000
TEXTS = ("Hello.", "", " ", "\u4f60\u597d, \U0001f600 \u202eabc\x00", LONG, "a" * 200_000)

Options = Mapping[str, Any]


def checked_call(document: Mapping[str, Any] | None = None, **fields: Any) -> CheckedCall:
    """A chat call as hooks see it. `fields` replace its attributes, such as `account="acme"`."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello."}], **(document or {})}
    named = {"request_id": "req_1", "endpoint": "chat", "account": "acme", "key_id": "key_1", "user": "", "model": "m"}
    given = {**named, "session": "", "stream": bool(body.get("stream")), "tags": {}, **fields}
    return CheckedCall(lambda: copy.deepcopy(body), lambda: decode_chat_request(msgspec.json.encode(body)), **given)


def checked_answer(answer: Any = "Hello.", *, kind: str = "text", before: str = "") -> CheckedAnswer:
    """An answer as hooks see it: a text is a part of a stream, and a dict a whole answer."""
    is_part = isinstance(answer, str)
    return CheckedAnswer(lambda: copy.deepcopy(answer), is_part=is_part, kind=kind if is_part else "", before=before)


def whole_answer(text: str = "Hello.") -> WholeAnswer:
    """A whole answer of chat as hooks give and get it."""
    choice = Choice(message=ChatMessage(content=text), finish_reason="stop")
    return WholeAnswer.of(ChatCompletion(choices=[choice], usage=CompletionUsage(5, 7, 12)))


def run_hook(
    hook: type[Hook],
    *,
    options: Options | None = None,
    call: CheckedCall | None = None,
    answer: CheckedAnswer | None = None,
    kept: WholeAnswer | None = None,
    credential: str | None = None,
    routes: Sequence[RouteOption] | None = None,
) -> Any:
    """What the hook returns for a credential, for an answer of a call, for the options of a call, or for a call.

    A hook that answers calls gets `kept` first, the answer of an earlier call that is the same.
    """

    async def result() -> Any:
        upstream = Upstream()
        instance = await _started(hook, options or {}, upstream)
        try:
            seen = call or checked_call()
            if credential is not None:
                return await _does(instance, Authenticate).authenticate(credential)
            if answer is not None:
                return await _does(instance, CheckAnswer).check_answer(seen, answer)
            if routes is not None:
                return await _does(instance, Route).route(seen, routes)
            if kept is not None:
                await _does(instance, KeepAnswer).keep_answer(seen, kept)
            if kept is not None or not isinstance(instance, CheckCall):
                return await _does(instance, AnswerCall).answer_call(seen)
            return await instance.check_call(seen)
        finally:
            await instance.close()
            await upstream.close()

    return run(result())


def check_hook(hook: type[Hook], *, options: Options | None = None) -> list[str]:
    """Check one hook class; the names of the cases that passed. `options` are written as in the configuration."""
    name = f"{hook.__module__}.{hook.__qualname__}"
    assert issubclass(hook, Hook), f"{name} does not extend gateway.Hook"
    assert hook.name, f"{name} has no `name`"
    assert hook_capabilities(hook), f"{name} does nothing; extend gateway.CheckCall or another"
    assert hook.Options.__struct_config__.forbid_unknown_fields, f"{name}.Options must set forbid_unknown_fields"
    return run(_check(hook, options or {}))


async def _check(hook: type[Hook], options: Options) -> list[str]:
    passed: list[str] = []
    for kind, case in CASES:
        if issubclass(hook, kind):
            upstream = Upstream()
            instance = await _started(hook, options, upstream)
            try:
                await case(instance)
            except AssertionError as error:
                raise AssertionError(f"{hook.__name__}, {case.__name__}: {error}") from error
            finally:
                await instance.close()
                await upstream.close()
            passed.append(case.__name__)
    return passed


async def passes_or_replaces_calls(hook: Any) -> None:
    """Whatever the text, it ends, and returns None, a body that is valid, or raises a refusal."""
    for text in TEXTS:
        call = checked_call({"messages": [{"role": "user", "content": text}]})
        found = await _run(hook.check_call(call))
        if isinstance(found, GatewayError) or found is None:
            continue
        assert isinstance(found, dict), f"it returned a {type(found).__name__}, which is no body"
        decode_chat_request(msgspec.json.encode(found))
        for name in FIXED:
            assert found.get(name) == checked_call().document.get(name), f"it changed `{name}`"


async def serves_many_calls_at_once(hook: Any) -> None:
    """Many calls at once get what each gets alone."""
    alone = await _run(hook.check_call(checked_call()))
    found = await asyncio.gather(*(_run(hook.check_call(checked_call())) for _ in range(AT_ONCE)))
    assert all(_same(one, alone) for one in found), "calls at once got something else than one alone"


async def ends_when_it_is_cancelled(hook: Any) -> None:
    """A cancelled run ends."""
    task = asyncio.ensure_future(hook.check_call(checked_call({"messages": [{"role": "user", "content": LONG}]})))
    await asyncio.sleep(0)
    task.cancel()
    assert await ends(task, STOPS_WITHIN), f"it went on for {STOPS_WITHIN:g} s after it was cancelled"


async def passes_or_replaces_answers(hook: Any) -> None:
    """Whatever the text, a whole answer passes, or another one of JSON replaces it."""
    for text in TEXTS:
        message = {"role": "assistant", "content": text}
        document = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        found = await _run(hook.check_answer(checked_call(), checked_answer(document)))
        if isinstance(found, GatewayError) or found is None:
            continue
        assert isinstance(found, dict), f"it returned a {type(found).__name__}, which is no answer"
        msgspec.json.encode(found)


async def passes_or_refuses_parts_of_streams(hook: Any) -> None:
    """A part of a stream passes or is refused; nothing can replace it."""
    for text in TEXTS:
        for kind in ("text", "reasoning", "tool"):
            part = checked_answer(text, kind=kind, before="Before. ")
            found = await _run(hook.check_answer(checked_call({"stream": True}), part))
            assert found is None or isinstance(found, GatewayError), "it replaced a part of a stream"


async def knows_no_strange_credential(hook: Any) -> None:
    """A credential that nobody has issued gets no identity."""
    for text in ("x", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "." * 8192, "\x7f" * 10):
        found = await _run(hook.authenticate(text))
        assert found is None or isinstance(found, GatewayError), f"it knows {text[:20]!r}"
        assert not isinstance(found, Identity)


async def orders_options(hook: Any) -> None:
    """It returns some of the options, each once."""
    options = [RouteOption(position, "up", f"model-{position}", "m", 0.0, 0) for position in range(4)]
    found = await _run(hook.route(checked_call(), list(options)))
    if not isinstance(found, GatewayError):
        assert isinstance(found, (list, tuple)), f"it returned a {type(found).__name__}"
        positions = [one.position for one in found]
        assert len(set(positions)) == len(positions) and set(positions) <= {0, 1, 2, 3}, "it added an option"


async def answers_calls_or_passes_them(hook: Any) -> None:
    """Whatever the text, it ends, and returns None, an answer of chat, or raises a refusal."""
    for text in TEXTS:
        found = await _run(hook.answer_call(checked_call({"messages": [{"role": "user", "content": text}]})))
        if isinstance(found, GatewayError) or found is None:
            continue
        assert isinstance(found, WholeAnswer), f"it returned a {type(found).__name__}, which is no WholeAnswer"
        assert msgspec.json.decode(found.content, type=ChatCompletion).choices, "its answer has no choice"


async def takes_whole_answers(hook: Any) -> None:
    """Whatever the text, it ends, and raises nothing, also for many at once."""
    for text in TEXTS:
        await _run(hook.keep_answer(checked_call(), whole_answer(text)))
    await asyncio.gather(*(_run(hook.keep_answer(checked_call(), whole_answer())) for _ in range(AT_ONCE)))


CASES: tuple[tuple[type, Callable[[Any], Awaitable[None]]], ...] = (
    (CheckCall, passes_or_replaces_calls),
    (CheckCall, serves_many_calls_at_once),
    (CheckCall, ends_when_it_is_cancelled),
    (CheckAnswer, passes_or_replaces_answers),
    (CheckAnswer, passes_or_refuses_parts_of_streams),
    (Authenticate, knows_no_strange_credential),
    (Route, orders_options),
    (AnswerCall, answers_calls_or_passes_them),
    (KeepAnswer, takes_whole_answers),
)


async def _run(work: Any) -> Any:
    """What the hook returned, or the refusal that it raised."""
    assert inspect.isawaitable(work), "its methods are coroutines: write `async def`"
    task, began = asyncio.ensure_future(work), time.thread_time()
    done = await ends(task, WITHIN)
    held = time.thread_time() - began
    if not done:
        task.cancel()
        raise AssertionError(f"it had not ended after {WITHIN:g} s")
    assert held < BLOCKED * AT_ONCE, f"it took {held:.1f} s of the processor"
    try:
        return task.result()
    except GatewayError as error:
        is_refusal = error.status < 500 and not isinstance(error, UpstreamError)
        assert is_refusal, f"it raised {type(error).__name__}, which counts as a failure"
        return error
    except Exception as error:
        # The kit judges whatever a third party's code raises.
        raise AssertionError(f"it raised {type(error).__name__}: {error}") from error


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (isinstance(one, GatewayError) or bool(one == other))


def _does(instance: Hook, kind: type[Any]) -> Any:
    assert isinstance(instance, kind), f"{type(instance).__name__} does not extend gateway.{kind.__name__}"
    return instance


async def _started(hook: type[Hook], options: Options, upstream: Upstream) -> Hook:
    instance = hook(msgspec.convert(dict(options), hook.Options, dec_hook=_keep_secret), upstream)
    await asyncio.wait_for(instance.start(), WITHIN)
    return instance


def _keep_secret(kind: type, value: Any) -> Any:
    return value if isinstance(value, Secret) else secret_hook(kind, value)
