"""The conformance kit on edits of images: the built-ins pass it, and it catches what it is there to catch."""

from __future__ import annotations

import pytest
from msgspec import Raw, Struct

from gateway import GeneratedImage, ImageAnswer, ImageEdit, ImageEditRequest, Provider, Secret, Target
from gateway.testing import FakeUpstream, check_provider
from gateway.testing.image_edit_cases import CASES, UPSTREAM_CASES
from gateway.testing.openai_dialect import PIXEL
from gateway_providers.fake import FakeProvider
from gateway_providers.openai import OpenAIProvider

NAMES = {case.__name__ for case in CASES}
UPSTREAM_NAMES = {case.__name__ for case in UPSTREAM_CASES} - {"image_edit_refusals_of_the_vendor_become_typed_errors"}


def test_openai_and_fake_conform_on_edits() -> None:
    options = {"base_url": "{upstream}/v1", "api_key": Secret("literal", "sk-canary-9f2c41")}
    passed = check_provider(OpenAIProvider, options=options, upstream=FakeUpstream())
    assert set(passed) >= NAMES | UPSTREAM_NAMES
    assert set(check_provider(FakeProvider)) >= NAMES


class Editor(Provider, ImageEdit):
    """A provider without fault, for the others to break."""

    name = "editor"
    image_edit_fields = None

    class Options(Struct, forbid_unknown_fields=True):
        pass

    async def edit_images(self, request: ImageEditRequest, target: Target) -> ImageAnswer:
        for file in request.files:
            async for _ in file.chunks():
                pass
        return ImageAnswer([GeneratedImage(PIXEL) for _ in range(request.count)])


def test_minimal_provider_conforms() -> None:
    assert set(check_provider(Editor)) == NAMES


class OnlyOne(Editor):
    async def edit_images(self, request: ImageEditRequest, target: Target) -> ImageAnswer:
        return ImageAnswer((await super().edit_images(request, target)).data[:1])


class WithoutMask(Editor):
    async def edit_images(self, request: ImageEditRequest, target: Target) -> ImageAnswer:
        request = type(request)(model="m", prompt="x", image=request.image, n=request.n)
        return await super().edit_images(request, target)


class Meddler(Editor):
    async def edit_images(self, request: ImageEditRequest, target: Target) -> ImageAnswer:
        request.fields["model"] = Raw(b'"other"')
        return await super().edit_images(request, target)


@pytest.mark.parametrize(
    ("provider", "complaint"),
    [
        (OnlyOne, "1 images instead of 3"),
        (WithoutMask, "an image was not read"),
        (Meddler, "changed the request"),
    ],
)
def test_kit_reports_a_faulty_provider(provider: type[Provider], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_provider(provider)
