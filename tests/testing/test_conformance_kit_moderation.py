"""The conformance kit on moderations: the built-ins pass it, and it catches what it is there to catch."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, Struct

from gateway import Moderation, ModerationAnswer, ModerationRequest, ModerationResult, Provider, Secret, Target
from gateway.schemas.scoring.moderation import CATEGORIES, text_of
from gateway.testing import FakeUpstream, check_provider
from gateway.testing.moderation_cases import CASES, UPSTREAM_CASES
from gateway_providers.fake import FakeProvider
from gateway_providers.openai import OpenAIProvider

NAMES = {case.__name__ for case in CASES}
UPSTREAM_NAMES = {case.__name__ for case in UPSTREAM_CASES} - {"moderation_refusals_of_the_vendor_become_typed_errors"}


def test_openai_and_fake_conform_on_moderations() -> None:
    options = {"base_url": "{upstream}/v1", "api_key": Secret("literal", "sk-canary-9f2c41")}
    passed = check_provider(OpenAIProvider, options=options, upstream=FakeUpstream())
    assert set(passed) >= NAMES | UPSTREAM_NAMES
    assert set(check_provider(FakeProvider)) >= NAMES


class Judge(Provider, Moderation):
    """A provider without fault, for the others to break."""

    name = "judge"
    moderation_fields = None

    class Options(Struct, forbid_unknown_fields=True):
        pass

    async def moderate(self, request: ModerationRequest, target: Target) -> ModerationAnswer:
        return ModerationAnswer([self.result("".join(map(text_of, parts))) for parts in request.inputs])

    def result(self, text: str) -> Any:
        score = sum(map(ord, text)) % 97 / 97
        return ModerationResult(score > 0.5, {}, dict.fromkeys(CATEGORIES, score))


def test_minimal_provider_conforms() -> None:
    assert set(check_provider(Judge)) == NAMES


class TextsOnly(Judge):
    moderates_images = False


def test_provider_of_texts_is_not_asked_about_images() -> None:
    report = check_provider(TextsOnly)
    assert report.skipped == {"images_are_judged": "`moderates_images` is false"}


class OnePerPart(Judge):
    async def moderate(self, request: ModerationRequest, target: Target) -> ModerationAnswer:
        parts = [request.input] if isinstance(request.input, str) else request.input
        return ModerationAnswer([self.result(text_of(part)) for part in parts])


class Reversed(Judge):
    async def moderate(self, request: ModerationRequest, target: Target) -> ModerationAnswer:
        return ModerationAnswer((await super().moderate(request, target)).results[::-1])


class InPercent(Judge):
    def result(self, text: str) -> Any:
        return ModerationResult(True, {}, {"hate": 90.0})


class OtherWords(Judge):
    def result(self, text: str) -> Any:
        return ModerationResult(True, {}, {"S1": 0.9})


class Meddler(Judge):
    async def moderate(self, request: ModerationRequest, target: Target) -> ModerationAnswer:
        request.fields["model"] = Raw(b'"other"')
        return await super().moderate(request, target)


@pytest.mark.parametrize(
    ("provider", "complaint"),
    [
        (OnePerPart, "3 results for 1 inputs"),
        (Reversed, "result 1 of 3 is not the one that its text has alone"),
        (InPercent, "no number from 0 to 1"),
        (OtherWords, "no category is one of the wire's"),
        (Meddler, "changed the request"),
    ],
)
def test_kit_reports_a_faulty_provider(provider: type[Provider], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_provider(provider)
