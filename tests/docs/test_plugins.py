"""docs/plugins.md says what the code says: every hook with its exact signature, every error and builder it names."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import gateway
from gateway import errors
from gateway.billing.call_record import CallRecord
from gateway.plugins import hookspecs

DOCS = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")


def hooks() -> dict[str, str]:
    """Every hook with the signature a plugin author writes."""
    marked = {name: hook for name, hook in vars(hookspecs).items() if hasattr(hook, "gateway_spec")}
    return {name: f"{name}({', '.join(inspect.signature(hook).parameters)})" for name, hook in marked.items()}


def test_every_hook_is_documented_with_its_signature() -> None:
    assert len(hooks()) == 4
    for signature in hooks().values():
        assert f"| `{signature}` |" in DOCS


def test_every_field_of_a_call_record_is_documented() -> None:
    (paragraph,) = [part for part in DOCS.split("\n\n") if part.startswith("`CallRecord` has")]
    assert set(re.findall(r"`([a-z_]+)`", paragraph)) == set(CallRecord.__struct_fields__)


def test_every_upstream_error_is_documented() -> None:
    kinds = errors.UpstreamError.__subclasses__()
    raised = {kind.__name__ for kind in kinds if kind.__module__.startswith("gateway.")}  # other tests have their own
    assert raised
    assert raised <= set(re.findall(r"(?:Upstream|Provider)[A-Za-z]+", DOCS))


def test_names_imported_by_the_documentation_exist() -> None:
    for name in re.findall(r"`gateway\.([A-Z][A-Za-z]+)`", DOCS):
        assert name in gateway.__all__
    for name in re.findall(r"`(?:ChatChunk)?\.([a-z_]+)\(", DOCS):
        assert hasattr(gateway.ChatChunk, name)


def test_every_public_name_can_be_imported() -> None:
    for name in gateway.__all__:
        assert getattr(gateway, name) is not None


def methods(capability: type) -> dict[str, str]:
    """The methods a plugin author writes or may write, as the page shows them."""
    found = {name: call for name, call in vars(capability).items() if inspect.isfunction(call)}
    return {name: f"{name}({', '.join(inspect.signature(call).parameters)})" for name, call in found.items()}


@pytest.mark.parametrize("name", ["Chat", "Embeddings", "Images", "Speech", "Transcription"])
def test_every_method_and_flag_of_a_capability_is_documented(name: str) -> None:
    (section,) = re.findall(rf"^### {name}\n(.*?)(?=^###? )", DOCS, re.MULTILINE | re.DOTALL)
    capability = getattr(gateway, name)
    for method, signature in methods(capability).items():
        assert signature in section or signature.replace("self, ", "") in section, method
    for flag in capability.__annotations__:
        assert f"`{flag}" in section, flag


def test_names_about_requests_and_answers_are_attributes_of_their_classes() -> None:
    kinds = (
        gateway.ChatRequest,
        gateway.EmbeddingRequest,
        gateway.ImageRequest,
        gateway.SpeechRequest,
        gateway.TranscriptionRequest,
    )
    for name in re.findall(r"`request\.([a-z_]+)`", DOCS):
        assert any(hasattr(kind, name) for kind in kinds), name
    for name in ("size", "quality", "background", "output_format"):
        assert name in gateway.ImageAnswer.__struct_fields__
    assert {"partial_index", "usage"} <= set(gateway.ImageEvent.__struct_fields__)
    assert {"duration", "segments", "words", "usage"} <= set(gateway.Transcript.__struct_fields__)
    assert {"filename", "media_type", "size", "seconds"} <= set(gateway.AudioFile.__annotations__)
