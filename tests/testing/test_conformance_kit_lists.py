"""The conformance kit on lists of models: the built-in passes it, and it catches what it is there to catch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Struct

from gateway import Chat, ChatChunk, ListedModel, ListLimits, ModelList, Provider, Secret
from gateway.errors import UpstreamAuthError, UpstreamError
from gateway.testing import FakeUpstream, check_provider, conformance
from gateway.testing.model_list_cases import NO_LIST_IN_TEST
from gateway.testing.openai_dialect import openai_chat
from gateway_providers.openai import OpenAIProvider

CASES = {"models_are_listed", "model_list_cancellation_is_obeyed", "model_list_secrets_stay_hidden"}
UPSTREAM_CASES = {
    "model_list_is_bounded",
    "model_list_statuses_become_typed_errors",
    "model_list_nonsense_is_an_invalid_response",
    "model_list_silence_times_out",
    "model_list_cancelling_closes_the_upstream",
}
SECRET = "sk-canary-9f2c41"
OPENAI = {"base_url": "{upstream}/v1", "api_key": Secret("literal", SECRET)}


@pytest.fixture(autouse=True)
def lists_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases of chats have tests of their own."""
    for part in ("CASES", "UPSTREAM_CASES"):
        cases = getattr(conformance, part)[conformance.MODEL_LIST]
        monkeypatch.setattr(conformance, part, {conformance.MODEL_LIST: cases})


def test_openai_conforms_on_lists_of_models() -> None:
    report = check_provider(OpenAIProvider, options=OPENAI, upstream=FakeUpstream())
    assert set(report) >= CASES | UPSTREAM_CASES


def test_an_upstream_of_chats_alone_skips_the_cases() -> None:
    report = check_provider(OpenAIProvider, options=OPENAI, upstream=FakeUpstream(openai_chat))
    assert report.skipped["models_are_listed"] == NO_LIST_IN_TEST
    assert not set(report) & (CASES | UPSTREAM_CASES)


class Lister(Provider, Chat, ModelList):
    """A provider without fault, for the others to break."""

    name = "lister"

    class Options(Struct, forbid_unknown_fields=True):
        address: str = ""

    async def stream_chat(self, request: Any, target: Any) -> Any:
        yield ChatChunk.text("hello")

    async def list_models(self, limits: ListLimits) -> Sequence[ListedModel]:
        return [ListedModel(name="m", price={"input": "1", "output": "2"}), ListedModel(name="n")]


def test_a_list_without_an_upstream_passes() -> None:
    assert set(check_provider(Lister)) == CASES


@pytest.mark.parametrize(
    ("listed", "fault"),
    [
        ([], "the list has no models"),
        (iter([ListedModel(name="m")]), "returned list_iterator, not a list"),
        ([{"id": "m"}], "instead of a ListedModel"),
        ([ListedModel(name="a b")], "{'name': 1}"),
        ([ListedModel(name="m"), ListedModel(name="m")], "{'repeated': 1}"),
        ([ListedModel(name="m", endpoints=("video",))], "['video']"),
        (
            [ListedModel(name="m", price={"input": "0.000001", "output": 1})],
            "is less than 0.0005",
        ),
        ([ListedModel(name="m", price={"prompt": "1"})], "the gateway cannot charge it"),
    ],
)
def test_a_faulty_list_is_caught(listed: Any, fault: str) -> None:
    class Faulty(Lister):
        async def list_models(self, limits: ListLimits) -> Sequence[ListedModel]:
            return listed  # type: ignore[no-any-return]

    with pytest.raises(AssertionError) as caught:
        check_provider(Faulty)
    assert "models_are_listed" in str(caught.value)
    assert fault in str(caught.value)


class Unbounded(OpenAIProvider):  # type: ignore[misc]
    """Reads whatever the server sends."""

    async def list_models(self, limits: ListLimits) -> Any:
        return await super().list_models(ListLimits(timeouts=limits.timeouts))


class Swallowing(OpenAIProvider):  # type: ignore[misc]
    """Has a list of its own if the server gives none."""

    async def list_models(self, limits: ListLimits) -> Any:
        try:
            return await super().list_models(limits)
        except UpstreamError:
            return [ListedModel(name="m")]


class Leaky(OpenAIProvider):  # type: ignore[misc]
    """Shows its key in errors."""

    async def list_models(self, limits: ListLimits) -> Any:
        try:
            return await super().list_models(limits)
        except UpstreamAuthError as error:
            raise UpstreamAuthError(f"refused with key {SECRET}") from error


@pytest.mark.parametrize(
    ("provider", "fault"),
    [
        (Unbounded, "model_list_is_bounded: a list over limits.most_bytes gave an answer"),
        (Swallowing, "gave an answer instead of an error"),
        (Leaky, "shows a secret"),
    ],
)
def test_a_provider_that_does_not_heed_its_server_is_caught(provider: type[Provider], fault: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_provider(provider, options=OPENAI, upstream=FakeUpstream())
    assert fault in str(caught.value)
