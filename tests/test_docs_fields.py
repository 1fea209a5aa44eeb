"""docs/fields.md has every field of every endpoint with its bounds and its values, and no other field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as kinds
import pytest

from gateway.schemas import chat_messages
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.completions.request import CompletionsRequest
from gateway.schemas.embeddings import EmbeddingRequest
from gateway.schemas.gemini_request import GeminiRequest
from gateway.schemas.images import ImageEditRequest, ImageRequest
from gateway.schemas.messages_request import MessagesRequest
from gateway.schemas.request_fields import RequestFields
from gateway.schemas.responses.request import ResponsesRequest
from gateway.schemas.scoring.moderation import ModerationRequest
from gateway.schemas.scoring.rerank import RerankRequest
from gateway.schemas.speech import SpeechRequest
from gateway.schemas.transcription import TranscriptionRequest, TranslationRequest

PAGE = (Path(__file__).parent.parent / "docs" / "fields.md").read_text(encoding="utf-8")
ENDPOINTS: dict[str, type[RequestFields]] = {
    "Chat": ChatRequest,
    "Completions": CompletionsRequest,
    "Responses": ResponsesRequest,
    "Anthropic messages": MessagesRequest,
    "Gemini": GeminiRequest,
    "Embeddings": EmbeddingRequest,
    "Image edits": ImageEditRequest,
    "Moderation": ModerationRequest,
    "Rerank": RerankRequest,
    "Images": ImageRequest,
    "Speech": SpeechRequest,
    "Transcription": TranscriptionRequest,
    "Translation": TranslationRequest,
}
BOUNDS = ("ge", "le", "min_length", "max_length")
WORDED = {0, 1}  # bounds that the page may say in words: "from 1", "none of them empty"
HUGE = 2**31 - 1  # a bound that no request comes near


def rows(section: str) -> dict[str, str]:
    """Fields and what they may be, of one endpoint's table."""
    text = PAGE.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))


def facts(kind: Any) -> Iterator[str]:
    """Each bound and each value in a field's type, as the page writes it; not those inside of objects."""
    for name in BOUNDS:
        bound = getattr(kind, name, None)
        if bound is not None and abs(bound) < HUGE and bound not in WORDED:
            yield f"{bound:,g}" if isinstance(bound, float) else f"{bound:,}"
    if isinstance(kind, kinds.LiteralType):
        yield from (f"`{value}`" for value in kind.values)
    for part in getattr(kind, "types", ()):
        yield from facts(part)
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(kind, name):
            yield from facts(getattr(kind, name))


@pytest.mark.parametrize("section", ENDPOINTS)
def test_table_has_a_row_for_each_field_and_no_other(section: str) -> None:
    kind = ENDPOINTS[section]
    names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    assert set(rows(section)) == {names[name] for name in kind.field_classes}


@pytest.mark.parametrize("section", ENDPOINTS)
def test_row_has_the_bounds_and_values_of_its_field(section: str) -> None:
    kind = kinds.type_info(ENDPOINTS[section])
    assert isinstance(kind, kinds.StructType)
    told, found = rows(section), 0
    for field in kind.fields:
        for fact in facts(field.type):
            found += 1
            assert re.search(rf"(?<![\w,.]){re.escape(fact)}(?!\w|[,.]\d)", told.get(field.encode_name, fact)), (
                field.name,
                fact,
            )
        if field.required and field.encode_name in told:
            assert told[field.encode_name].startswith("required"), field.name
    assert found > 1


def test_messages_have_the_roles_and_keys_of_the_code() -> None:
    section = PAGE.split("### Messages\n", 1)[1].split("| --- |\n", 1)[1].split("\n### ", 1)[0]
    told = {
        role: set(re.findall(r"`(\w+)`", keys))
        for role, keys in re.findall(r"^\| `(\w+)` \| .* \| (.*?) \|$", section, re.MULTILINE)
    }
    messages: list[Any] = [
        kind for kind in vars(chat_messages).values() if isinstance(kind, type) and hasattr(kind, "role")
    ]
    assert told == {kind.role: set(kind.__struct_fields__) - {"content"} for kind in messages}
