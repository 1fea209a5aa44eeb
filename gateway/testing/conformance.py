"""The conformance kit: what every provider must do, checked on a live instance.

`check_provider` runs the cases of each capability the class has, and with a `FakeUpstream` also the cases about an
upstream that refuses, lies, stalls or breaks off. It returns the names of the cases that passed, with notes, and raises
AssertionError, naming case and fault, at the first that did not, also if the provider raises something else or does
not end. The cases are the public functions of `chat_cases`, `upstream_cases`, `embeddings_cases` and so on. Sharp edge:
it runs its own event loop, so it cannot be called from an async test.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import Any, NoReturn

import msgspec

from gateway.config.secret import Secret, secret_hook
from gateway.http_client.timeouts import Timeouts
from gateway.plugins.model_list import ModelList
from gateway.plugins.provider import Provider, Target, capabilities_of
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatCompletion
from gateway.testing import (
    chat_cases,
    completions_cases,
    embeddings_cases,
    image_edit_cases,
    images_cases,
    model_list_cases,
    moderation_cases,
    realtime_cases,
    rerank_cases,
    speech_cases,
    standard_cases,
    transcription_cases,
    upstream_cases,
)
from gateway.testing.event_loop import STOPS_WITHIN, ends, run
from gateway.testing.fake_upstream import FakeUpstream
from gateway.testing.subject import Case, CheckReport, NotConcerned, Subject, VendorEndings, VendorRefusal

MODEL_LIST = "model list"  # no capability of models
CASES: Mapping[str, tuple[Case, ...]] = {
    "chat": (*chat_cases.CASES, *completions_cases.CASES, *standard_cases.CASES),
    "embeddings": embeddings_cases.CASES,
    "images": images_cases.CASES,
    "moderation": moderation_cases.CASES,
    "realtime": realtime_cases.CASES,
    "rerank": rerank_cases.CASES,
    "speech": speech_cases.CASES,
    "transcription": transcription_cases.CASES,
    "image_edit": image_edit_cases.CASES,
    MODEL_LIST: model_list_cases.CASES,
}
CASE_WITHIN = 30.0  # seconds that a case may take, with the start and the end of its provider
UPSTREAM_CASES: Mapping[str, tuple[Case, ...]] = {
    "chat": (*upstream_cases.CASES, *completions_cases.UPSTREAM_CASES),
    "embeddings": embeddings_cases.UPSTREAM_CASES,
    "images": images_cases.UPSTREAM_CASES,
    "moderation": moderation_cases.UPSTREAM_CASES,
    "realtime": realtime_cases.UPSTREAM_CASES,
    "rerank": rerank_cases.UPSTREAM_CASES,
    "speech": speech_cases.UPSTREAM_CASES,
    "transcription": transcription_cases.UPSTREAM_CASES,
    "image_edit": image_edit_cases.UPSTREAM_CASES,
    MODEL_LIST: model_list_cases.UPSTREAM_CASES,
}


def check_provider(
    provider: type[Provider],
    *,
    options: Mapping[str, Any] | None = None,
    target: Target | None = None,
    upstream: FakeUpstream | None = None,
    refusal: VendorRefusal | None = None,
    endings: VendorEndings | None = None,
    sends_counts: bool = True,
) -> CheckReport:
    """Check one provider class; the names of the cases that passed, beside the skipped ones and the notes.

    `options` are written as in the configuration; `{upstream}` in a text stands for the address of `upstream`, and
    secrets may be `Secret` objects. Give `upstream` for a provider that talks to one, with the vendor's dialect as its
    `answer`. `refusal(status, text)` makes an error with this status and text in the vendor's own shape; if the shape
    has a pause, let it be 7 seconds. `endings` has, by finish reasons such as "length", the `answer` of a vendor whose
    chat answers end for this reason. `sends_counts` says whether the vendor's chat answers have usage. Notes are
    printed, too.
    """
    more = {"upstream": upstream, "refusal": refusal, "endings": endings, "sends_counts": sends_counts}
    report = run(_check(provider, options or {}, target, upstream, more))
    for note in report.notes:
        sys.stdout.write(f"check_provider, {provider.__name__}: {note}\n")
    return report


def collect(
    provider: type[Provider],
    request: ChatRequest,
    *,
    options: Mapping[str, Any] | None = None,
    upstream: FakeUpstream | None = None,
) -> ChatCompletion:
    """The whole answer of a provider; `options` and `upstream` are as in `check_provider`."""

    async def answer() -> ChatCompletion:
        async with upstream or nullcontext():
            converted = _options(provider, options or {}, upstream.url if upstream else "")
            async with Subject(provider, converted, Target("subject", "model"), upstream=upstream) as subject:
                return await subject.chat.chat(request, subject.target)

    return run(answer())


async def _check(
    provider: type[Provider],
    options: Mapping[str, Any],
    target: Target | None,
    upstream: FakeUpstream | None,
    more: Mapping[str, Any],
) -> CheckReport:
    _check_declaration(provider)
    target = target or Target("subject", "upstream-model", "public-name", Timeouts(connect=2.0))
    report = CheckReport()
    async with upstream or nullcontext():
        converted = _options(provider, options, upstream.url if upstream else "")
        for cases in (CASES, UPSTREAM_CASES) if upstream else (CASES,):
            for case in (case for part in _parts(provider) for case in cases.get(part, ())):
                subject = Subject(provider, converted, target, **more)
                await _run_case(case, subject, report)
    return report


def _parts(provider: type[Provider]) -> list[str]:
    """What the class does that has cases: its capabilities, and its list of models."""
    return [*capabilities_of(provider), *([MODEL_LIST] if issubclass(provider, ModelList) else [])]


async def _run_case(case: Callable[[Subject], Awaitable[None]], subject: Subject, report: CheckReport) -> None:
    try:
        await _finish_case(case, subject)
    except NotConcerned as reason:
        if str(reason):
            report.skipped[case.__name__] = str(reason)
    else:
        report.append(case.__name__)
    report.notes += [f"{case.__name__}: {note}" for note in subject.notes]


async def _finish_case(case: Callable[[Subject], Awaitable[None]], subject: Subject) -> None:
    name = f"{type(subject.provider).__name__}, {case.__name__}"
    task = asyncio.create_task(_case(case, subject))
    if not await ends(task, CASE_WITHIN):
        await _give_up(task, subject, name)
    try:
        task.result()
    except NotConcerned:
        raise
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from error
    except Exception as error:
        # The kit judges whatever a third party's code raises.
        raise AssertionError(f"{name}: raised {type(error).__name__}: {error}{_place(error)}") from error


async def _case(case: Callable[[Subject], Awaitable[None]], subject: Subject) -> None:
    async with subject:
        await case(subject)


async def _give_up(task: asyncio.Task[None], subject: Subject, name: str) -> NoReturn:
    """Cancel a case that has taken too long, and abandon it if it goes on."""
    complaint = f"{name}: it had not ended after {CASE_WITHIN:g} s{_last_request(subject)}"
    task.cancel()
    if not await ends(task, STOPS_WITHIN):
        complaint += (
            f"; it went on for {STOPS_WITHIN:g} s after it was cancelled: a `finally` must not wait for the vendor"
        )
    raise AssertionError(complaint)


def _place(error: Exception) -> str:
    """File and line where an exception was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _last_request(subject: Subject) -> str:
    """Where a call that does not end may be."""
    if not subject.has_upstream or not subject.fake.seen:
        return ""
    seen = subject.fake.seen[-1]
    return f"; its last request was {seen.method} {seen.path}, whose answer is {seen.outcome!r}"


def _check_declaration(provider: type[Provider]) -> None:
    name = f"{provider.__module__}.{provider.__qualname__}"
    assert issubclass(provider, Provider), f"{name} does not extend gateway.Provider"
    assert provider.name, f"{name} has no `name`"
    assert capabilities_of(provider), f"{name} has no capability; extend gateway.Chat or another"
    assert issubclass(provider.Options, msgspec.Struct), f"{name}.Options is not a msgspec.Struct"
    config = provider.Options.__struct_config__
    assert config.forbid_unknown_fields, (
        f"{name}.Options must set forbid_unknown_fields, or typing errors pass unnoticed"
    )


def _options(provider: type[Provider], options: Mapping[str, Any], address: str) -> Any:
    return msgspec.convert(_placed(options, address), provider.Options, dec_hook=_keep_secret)


def _placed(value: Any, address: str) -> Any:
    """`value` with the upstream's address put in."""
    if isinstance(value, str):
        return value.replace("{upstream}", address)
    if isinstance(value, Mapping):
        return {key: _placed(inner, address) for key, inner in value.items()}
    return value


def _keep_secret(kind: type, value: Any) -> Any:
    return value if isinstance(value, Secret) else secret_hook(kind, value)
