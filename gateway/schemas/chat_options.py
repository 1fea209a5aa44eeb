"""The nested objects of a chat request that are neither messages nor tools (docs/fields.md, "Chat").

Every optional key also takes null, which equals absence. Unknown keys are ignored here, but still travel in
`ChatRequest.fields`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.schemas.chat_messages import Name, NonEmpty, TextContent, TextFormat


class StreamOptions(Struct, gc=False):
    """What a stream carries beside the answer."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class JSONObjectFormat(Struct, tag="json_object", tag_field="type", gc=False):
    """The answer is some JSON object."""


class JSONSchema(Struct, gc=False):
    """A named JSON Schema, an object."""

    name: Name
    description: str | None = None
    schema: Raw | UnsetType = UNSET
    strict: bool | None = None


class JSONSchemaFormat(Struct, tag="json_schema", tag_field="type", gc=False):
    """The answer is JSON that fits the schema."""

    json_schema: JSONSchema


class VoiceId(Struct, gc=False):
    """A voice of the caller's own."""

    id: NonEmpty


class AudioOutput(Struct, gc=False):
    """How a spoken answer sounds."""

    voice: NonEmpty | VoiceId
    format: Literal["wav", "aac", "mp3", "flac", "opus", "pcm16"]


class Prediction(Struct, tag="content", tag_field="type", gc=False):
    """Text that the answer will largely repeat."""

    content: TextContent


class ApproximatePlace(Struct, gc=False):
    """Roughly where the user is."""

    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class UserLocation(Struct, tag="approximate", tag_field="type", gc=False):
    """Where searches are made from."""

    approximate: ApproximatePlace | None = None


class WebSearchOptions(Struct, gc=False):
    """A search of the web before the answer."""

    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: UserLocation | None = None


class PromptCacheOptions(Struct, gc=False):
    """How the upstream caches the prompt."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m"] | None = None


class ModerationMode(Struct, gc=False):
    """What to do with a finding."""

    mode: Literal["score", "block"] | None = None


class ModerationPolicy(Struct, gc=False):
    """Modes for the prompt and for the answer."""

    input: ModerationMode | None = None
    output: ModerationMode | None = None


class Moderation(Struct, gc=False):
    """Moderation beside the answer."""

    model: str
    policy: ModerationPolicy | None = None


ResponseFormat = TextFormat | JSONObjectFormat | JSONSchemaFormat
