"""docs/plugins.md says what the code says: every hook with its exact signature, every error and builder it names."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

import gateway
from gateway import errors
from gateway.billing.call_record import CallRecord
from gateway.plugins import hookspecs
from tests.plugin_attributes import PAGE, page

DOCS = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
REFERENCE = Path(__file__).parents[1] / "testing" / "job_vendor"


def hooks() -> dict[str, str]:
    """Every hook with the signature a plugin author writes."""
    marked = {name: hook for name, hook in vars(hookspecs).items() if hasattr(hook, "gateway_spec")}
    return {name: f"{name}({', '.join(inspect.signature(hook).parameters)})" for name, hook in marked.items()}


def test_every_hook_is_documented_with_its_signature() -> None:
    assert len(hooks()) == 5
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


@pytest.mark.parametrize(
    "name", ["Chat", "Embeddings", "Images", "ImageEdit", "Moderation", "Realtime", "Rerank", "Speech", "Transcription"]
)
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
        gateway.ImageEditRequest,
        gateway.ModerationRequest,
        gateway.RealtimeRequest,
        gateway.RerankRequest,
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


def test_public_names_are_listed_by_dir() -> None:
    assert set(gateway.__all__) <= set(dir(gateway))


def test_attributes_of_public_classes_equal_the_page_generated_from_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.plugin_attributes"


def test_page_of_attributes_has_every_class_that_a_plugin_gets_or_makes() -> None:
    headings = set(re.findall(r"^### `(\w+)`", page(), re.MULTILINE))
    public = {name for name in gateway.__all__ if inspect.isclass(getattr(gateway, name))}
    assert public | {"Seen", "Reply", "FakeUpstream", "RunningGateway"} <= headings
    assert {"UserMessage", "TextPart", "ImagePart", "ImageURL", "FunctionTool", "FunctionDefinition"} <= headings
    assert page().count("| `") > 300


@pytest.mark.parametrize(
    "path", ["gateway_jobs/session.py", "gateway_jobs/dialect.py", "gateway_jobs/__init__.py", "tests/vendor.py"]
)
def test_files_of_the_page_are_those_of_the_reference_plugin(path: str) -> None:
    (block,) = re.findall(rf"^`{path}`:\n\n```python\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
    assert block == (REFERENCE / Path(path).name).read_text(encoding="utf-8")


def test_reference_plugin_imports_public_names_only() -> None:
    for path in REFERENCE.glob("*.py"):
        for module, name in re.findall(
            r"^from (gateway[\w.]*) import (?:\()?([^()]*?)\)?$", path.read_text(), re.MULTILINE
        ):
            assert module in {"gateway", "gateway.errors", "gateway.testing"}, f"{path.name} imports {module}"
            home = importlib.import_module(module)
            for one in re.findall(r"\w+", name):
                assert one in getattr(home, "__all__", vars(home)), one


def test_page_says_how_a_token_that_expires_is_kept() -> None:
    section = DOCS.split("\n## A vendor with jobs\n", 1)[1].split("\n## ", 1)[0]
    for word in ("expires", "sign-in", "202", "NDJSON", "upload", "DELETE"):
        assert word in section, word


def test_page_of_attributes_has_what_can_be_set_of_an_error_and_every_error_of_providers() -> None:
    section = page().split("\n## Errors\n", 1)[1].split("\n## ", 1)[0]
    for name in ("message", "code", "param", "retry_after", "detail"):
        assert f"| `{name}` | `" in section, name
    kinds: list[type[errors.UpstreamError]] = [errors.UpstreamError, *errors.UpstreamError.__subclasses__()]
    for kind in kinds:
        assert f"| `{kind.__name__}` | {kind.status} |" in section or not kind.__module__.startswith("gateway.")
