"""The conformance kit: what every provider must do, checked on a live instance.

`check_provider` runs the cases of each capability the class has, and with a `FakeUpstream` also the cases about an
upstream that refuses, lies, stalls or breaks off. It returns the names of the cases that passed and raises
AssertionError, naming case and fault, at the first that did not. The cases are the public functions of `chat_cases`,
`upstream_cases`, `embeddings_cases` and so on. Sharp edge: it runs its own event loop, so it cannot be called from an
async test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from gateway.config.secret import Secret, secret_hook
from gateway.http_client.timeouts import Timeouts
from gateway.plugins.provider import Provider, Target, capabilities_of
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatCompletion
from gateway.testing import (
    chat_cases,
    embeddings_cases,
    images_cases,
    speech_cases,
    transcription_cases,
    upstream_cases,
)
from gateway.testing.fake_upstream import FakeUpstream
from gateway.testing.subject import Case, Subject

CASES: Mapping[str, tuple[Case, ...]] = {
    "chat": chat_cases.CASES,
    "embeddings": embeddings_cases.CASES,
    "images": images_cases.CASES,
    "speech": speech_cases.CASES,
    "transcription": transcription_cases.CASES,
}
UPSTREAM_CASES: Mapping[str, tuple[Case, ...]] = {
    "chat": upstream_cases.CASES,
    "embeddings": embeddings_cases.UPSTREAM_CASES,
    "images": images_cases.UPSTREAM_CASES,
    "speech": speech_cases.UPSTREAM_CASES,
    "transcription": transcription_cases.UPSTREAM_CASES,
}


def check_provider(
    provider: type[Provider],
    *,
    options: Mapping[str, Any] | None = None,
    target: Target | None = None,
    upstream: FakeUpstream | None = None,
) -> list[str]:
    """Check one provider class; the names of the cases that passed.

    `options` are written as in the configuration; `{upstream}` in a text stands for the address of `upstream`, and
    secrets may be `Secret` objects. Give `upstream` for a provider that talks to one, with the vendor's dialect as its
    `answer`.
    """
    return asyncio.run(_check(provider, options or {}, target, upstream))


def collect(
    provider: type[Provider], request: ChatRequest, *, options: Mapping[str, Any] | None = None
) -> ChatCompletion:
    """The whole answer of a provider that needs no upstream."""

    async def run() -> ChatCompletion:
        async with Subject(provider, _options(provider, options or {}, ""), Target("subject", "model")) as subject:
            return await subject.chat.chat(request, subject.target)

    return asyncio.run(run())


async def _check(
    provider: type[Provider], options: Mapping[str, Any], target: Target | None, upstream: FakeUpstream | None
) -> list[str]:
    _check_declaration(provider)
    target = target or Target("subject", "upstream-model", "public-name", Timeouts(connect=2.0))
    if upstream is None:
        return await _run(provider, options, target, CASES, None)
    async with upstream:
        passed = await _run(provider, options, target, CASES, upstream)
        return passed + await _run(provider, options, target, UPSTREAM_CASES, upstream)


async def _run(
    provider: type[Provider],
    options: Mapping[str, Any],
    target: Target,
    cases: Mapping[str, tuple[Case, ...]],
    upstream: FakeUpstream | None,
) -> list[str]:
    passed = []
    converted = _options(provider, options, upstream.url if upstream else "")
    for capability in capabilities_of(provider):
        for case in cases.get(capability, ()):
            async with Subject(provider, converted, target, upstream=upstream) as subject:
                await _run_case(case, subject)
            passed.append(case.__name__)
    return passed


async def _run_case(case: Callable[[Subject], Awaitable[None]], subject: Subject) -> None:
    try:
        await asyncio.wait_for(case(subject), 30)
    except AssertionError as error:
        raise AssertionError(f"{type(subject.provider).__name__}, {case.__name__}: {error}") from error


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
