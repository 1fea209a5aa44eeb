"""The conformance kit on embeddings and images: the built-ins pass it, and it catches what it is there to catch."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from msgspec import Raw, Struct

from gateway import (
    Answer,
    EmbeddingAnswer,
    EmbeddingRequest,
    Embeddings,
    GeneratedImage,
    ImageAnswer,
    ImageEvent,
    ImageRequest,
    Images,
    Provider,
    Secret,
    Target,
)
from gateway.testing import FakeUpstream, Reply, check_provider
from gateway.testing.openai_dialect import PIXEL
from gateway.testing.whole_call_cases import NO_USAGE
from gateway_providers.fake import FakeProvider
from gateway_providers.openai import OpenAIProvider
from tests.delays import forever
from tests.polling import turns

CASES = {
    "vectors_keep_their_order",
    "dimensions_are_honoured",
    "number_of_images_is_honoured",
    "image_stream_is_sound",
    "embeddings_cancellation_is_obeyed",
    "images_secrets_stay_hidden",
}
UPSTREAM_CASES = {
    "embeddings_statuses_become_typed_errors",
    "embeddings_cancelling_closes_the_upstream",
    "images_nonsense_is_an_invalid_response",
    "cut_image_stream_never_looks_whole",
}


def test_openai_conforms_on_embeddings_and_images() -> None:
    options = {"base_url": "{upstream}/v1", "api_key": Secret("literal", "sk-canary-9f2c41")}
    passed = check_provider(OpenAIProvider, options=options, upstream=FakeUpstream())
    assert set(passed) >= CASES | UPSTREAM_CASES


def test_fake_conforms_on_embeddings_and_images() -> None:
    assert set(check_provider(FakeProvider)) >= CASES


class Embedder(Provider, Embeddings):
    """A provider without fault, for the others to break."""

    name = "embedder"
    embedding_fields: ClassVar[frozenset[str] | None] = frozenset({"dimensions"})

    class Options(Struct, forbid_unknown_fields=True):
        address: str = ""

    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        return EmbeddingAnswer([self.vector(str(entry), request.dimensions or 3) for entry in request.inputs])

    def vector(self, text: str, length: int) -> Any:
        return [float(sum(map(ord, text)) % (at + 7)) for at in range(length)]


class Painter(Provider, Images):
    """The same for images."""

    name = "painter"
    image_fields: ClassVar[frozenset[str] | None] = frozenset({"n"})

    class Options(Struct, forbid_unknown_fields=True):
        address: str = ""

    async def generate_images(self, request: ImageRequest, target: Target) -> ImageAnswer:
        return ImageAnswer([GeneratedImage(PIXEL) for _ in range(request.count)])


@pytest.mark.parametrize(
    ("provider", "case"),
    [(Embedder, "embedding_calls_at_once_do_not_mix"), (Painter, "number_of_images_is_honoured")],
)
def test_minimal_provider_conforms(provider: type[Provider], case: str) -> None:
    assert case in check_provider(provider)


class TooFew(Embedder):
    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        return EmbeddingAnswer([[1.0]])


class Backwards(Embedder):
    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        answer = await super().embed(request, target)
        return EmbeddingAnswer([self.vector("first", 3), *answer.vectors[1:]])


class Reversed(Embedder):
    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        return EmbeddingAnswer((await super().embed(request, target)).vectors[::-1])


class Rotated(Embedder):
    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        vectors = (await super().embed(request, target)).vectors
        return EmbeddingAnswer([*vectors[1:], vectors[0]])


class Swapped(Embedder):
    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        vectors = (await super().embed(request, target)).vectors
        return EmbeddingAnswer([*vectors[1::-1], *vectors[2:]])


class NotFinite(Embedder):
    def vector(self, text: str, length: int) -> Any:
        return [float("nan")] * length


class Deaf(Embedder):
    def vector(self, text: str, length: int) -> Any:
        return super().vector(text, 3)


class Alike(Embedder):
    def vector(self, text: str, length: int) -> Any:
        return [1.0] * length


class Meddler(Embedder):
    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        request.fields["model"] = Raw(b'"other"')
        return await super().embed(request, target)


class Stubborn(Embedder):
    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        try:
            await turns()
        except asyncio.CancelledError:
            await forever()
        return await super().embed(request, target)


class NoImage(Painter):
    async def generate_images(self, request: ImageRequest, target: Target) -> ImageAnswer:
        return ImageAnswer([])


class OnlyOne(Painter):
    async def generate_images(self, request: ImageRequest, target: Target) -> ImageAnswer:
        return ImageAnswer([GeneratedImage(PIXEL)])


class NotBase64(Painter):
    async def generate_images(self, request: ImageRequest, target: Target) -> ImageAnswer:
        return ImageAnswer([GeneratedImage("%%%%") for _ in range(request.count)])


class PreviewOnly(Painter):
    async def stream_images(self, request: ImageRequest, target: Target) -> Any:
        yield ImageEvent(PIXEL, 0)


@pytest.mark.parametrize(
    ("provider", "complaint"),
    [
        (TooFew, "1 vectors for 3 inputs"),
        (Backwards, "vector 2 of 3 is not the one that its text has alone"),
        (Reversed, "vector 1 of 3 is not the one that its text has alone"),
        (Rotated, "vector 1 of 3 is not the one that its text has alone"),
        (Swapped, "vector 1 of 3 is not the one that its text has alone"),
        (NotFinite, "not finite"),
        (Deaf, "3 numbers instead of 8"),
        (Alike, "different texts have the same vector"),
        (Meddler, "changed the request"),
        (Stubborn, "after it was cancelled"),
        (NoImage, "without images"),
        (OnlyOne, "1 images instead of 3"),
        (NotBase64, "neither base64 nor addresses"),
        (PreviewOnly, "0 of 1 images"),
    ],
)
def test_kit_reports_a_faulty_provider(provider: type[Provider], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_provider(provider)


class Careless(Embedder):
    """Sends, and takes every answer for a good one."""

    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        await (await self.send(target)).read()
        return await super().embed(request, target)

    async def send(self, target: Target) -> Answer:
        body = f'{{"input":"a","model":"{target.model}"}}'.encode()
        return await self.upstream.send("POST", f"{self.options.address}/embeddings", body=body)


class Leaky(Careless):
    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        answer = await self.send(target)
        if answer.status != 200:
            raise ValueError(f"{self.options.address} said {answer.status}")
        return await super().embed(request, target)


@pytest.mark.parametrize(
    ("provider", "complaint"),
    [(Careless, "gave an answer instead of an error"), (Leaky, "instead of an Upstream")],
)
def test_kit_reports_a_faulty_provider_with_an_upstream(provider: type[Provider], complaint: str) -> None:
    upstream = FakeUpstream(lambda seen: Reply.json({}))
    with pytest.raises(AssertionError, match=complaint):
        check_provider(provider, options={"address": "{upstream}"}, upstream=upstream)


class WithoutDimensions(Embedder):
    embedding_fields = frozenset()


class OneImageOnly(OnlyOne):
    image_fields = frozenset()


@pytest.mark.parametrize(
    ("provider", "case", "reason"),
    [
        (WithoutDimensions, "dimensions_are_honoured", "`embedding_fields` does not name dimensions"),
        (OneImageOnly, "number_of_images_is_honoured", "`image_fields` does not name n"),
    ],
)
def test_case_that_does_not_concern_the_provider_is_skipped_and_not_passed(
    provider: type[Provider], case: str, reason: str
) -> None:
    report = check_provider(provider)
    assert report.skipped == {case: reason}
    assert case not in report


def test_kit_notes_that_an_answer_has_no_counts() -> None:
    assert check_provider(Embedder).notes == [f"vectors_are_sound: {NO_USAGE}"]
    assert check_provider(FakeProvider).notes == []


class ForgetsTheModel(Careless):
    async def send(self, target: Target) -> Answer:
        return await super().send(Target("subject", "another"))


def test_kit_reports_a_model_that_is_not_sent() -> None:
    upstream = FakeUpstream(lambda seen: Reply.json({}))
    with pytest.raises(AssertionError, match=r"embeddings_model_is_sent: the call did not send target\.model, 'up"):
        check_provider(ForgetsTheModel, options={"address": "{upstream}"}, upstream=upstream)
