"""docs/plugins.md says what the code says: every hook with its exact signature, every error and builder it names."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import gateway
from gateway import errors, hookspecs
from gateway.receipt import CallRecord

DOCS = (Path(__file__).parent.parent / "docs" / "plugins.md").read_text(encoding="utf-8")


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
    raised = {kind.__name__ for kind in errors.UpstreamError.__subclasses__()}
    assert raised <= set(re.findall(r"Upstream[A-Za-z]+", DOCS))


def test_names_the_documentation_imports_exist() -> None:
    for name in re.findall(r"`gateway\.([A-Z][A-Za-z]+)`", DOCS):
        assert name in gateway.__all__
    for name in re.findall(r"`(?:ChatChunk)?\.([a-z_]+)\(", DOCS):
        assert hasattr(gateway.ChatChunk, name)


def test_every_public_name_can_be_imported() -> None:
    for name in gateway.__all__:
        assert getattr(gateway, name) is not None
