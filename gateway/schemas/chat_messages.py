"""The conversation a caller sends: messages by role, parts by type, tools, tool choices (docs/fields.md, "Messages").

Every union is tagged, so `match message: case UserMessage(): …` is all that a provider needs. Unknown keys are ignored
here, but still travel in `ChatRequest.fields`. What nobody in the gateway reads is `Raw`: a JSON schema costs a slice,
not a tree of objects. Sharp edge: msgspec cannot decode `Raw | None`, so such fields are `Raw | UnsetType`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, MsgspecError, Raw, Struct, UnsetType
from msgspec.json import Decoder

# `$` alone would let a final newline through.
NAME_PATTERN = r"^[A-Za-z0-9_-]+$(?!\n)"

MAX_PARTS = 5_000  # of one message
MAX_CALLS = 1_000  # of tools, in one message

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=NAME_PATTERN)]
NonEmpty = Annotated[str, Meta(min_length=1)]
Label = Annotated[str, Meta(max_length=512)]  # a name of something that exists elsewhere
ItemId = Annotated[str, Meta(max_length=16_384)]  # some clients put signatures into ids

# Parts -------------------------------------------------------------------------------------------------------------


class CacheBreakpoint(Struct, gc=False):
    """A hint that the prompt up to this part is worth caching."""

    mode: Literal["explicit"] = "explicit"
    ttl: Literal["30m", "12h"] | None = None


class CachedPart(Struct, gc=False, kw_only=True):
    """A part of a message, up to which the prompt may be worth caching."""

    prompt_cache_breakpoint: CacheBreakpoint | None = None
    cache_control: Raw | UnsetType = UNSET  # the same in Anthropic's words, which agents write for any Claude

    @property
    def cache_breakpoint(self) -> CacheBreakpoint | None:
        """The hint, in whichever words it came; one that cannot be read is none."""
        if self.prompt_cache_breakpoint is not None or self.cache_control is UNSET:
            return self.prompt_cache_breakpoint
        try:
            control = _cache_control.decode(self.cache_control)
        except MsgspecError:
            return None
        return CacheBreakpoint(ttl="12h" if control.ttl == "1h" else None)


class CacheControl(Struct, tag="ephemeral", tag_field="type", gc=False):
    """Anthropic's breakpoint."""

    ttl: str | None = None


_cache_control = Decoder(CacheControl)


class TextPart(CachedPart, tag="text", tag_field="type", gc=False):
    """A piece of text."""

    text: str


class ImageURL(Struct, gc=False):
    """Where an image is: an https URL, or the image itself as a base64 data URL."""

    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(CachedPart, tag="image_url", tag_field="type", gc=False):
    """An image to look at; the gateway passes its URL on and never fetches it."""

    image_url: ImageURL


class InputAudio(Struct, gc=False):
    """Audio as base64."""

    data: NonEmpty
    format: Literal["wav", "mp3"]


class AudioPart(CachedPart, tag="input_audio", tag_field="type", gc=False):
    """Audio to listen to."""

    input_audio: InputAudio


class File(Struct, gc=False):
    """A document as a data URL; `file_id` is refused, since there is no file store."""

    file_data: str | None = None
    filename: Label | None = None
    file_id: str | None = None


class FilePart(CachedPart, tag="file", tag_field="type", gc=False):
    """A document to read."""

    file: File


class RefusalPart(Struct, tag="refusal", tag_field="type", gc=False):
    """What an assistant said instead of an answer."""

    refusal: str


UserPart = TextPart | ImagePart | AudioPart | FilePart
TextContent = str | Annotated[list[TextPart], Meta(min_length=1, max_length=MAX_PARTS)]

# Messages ----------------------------------------------------------------------------------------------------------


class SystemMessage(Struct, tag="system", tag_field="role", gc=False):
    """Instructions for the whole conversation."""

    role: ClassVar[str] = "system"
    content: TextContent
    name: Label | None = None


class DeveloperMessage(Struct, tag="developer", tag_field="role", gc=False):
    """Instructions, as newer models call them; `system` to dialects without the role."""

    role: ClassVar[str] = "developer"
    content: TextContent
    name: Label | None = None


class UserMessage(Struct, tag="user", tag_field="role", gc=False):
    """Input from the caller."""

    role: ClassVar[str] = "user"
    content: str | Annotated[list[UserPart], Meta(min_length=1, max_length=MAX_PARTS)]
    name: Label | None = None


class FunctionArguments(Struct, gc=False):
    """A function that an assistant called, with the JSON text of its arguments."""

    name: Label
    arguments: str


class CustomInput(Struct, gc=False):
    """A custom tool that an assistant called, with its free-form input."""

    name: Label
    input: str


class FunctionToolCall(Struct, tag="function", tag_field="type", gc=False):
    """An earlier call of a function tool; `extra_content` carries e.g. Gemini's thought signatures."""

    id: ItemId
    function: FunctionArguments
    extra_content: Raw | UnsetType = UNSET


class CustomToolCall(Struct, tag="custom", tag_field="type", gc=False):
    """An earlier call of a custom tool."""

    id: ItemId
    custom: CustomInput
    extra_content: Raw | UnsetType = UNSET


class AudioReference(Struct, gc=False):
    """An earlier spoken answer, by its id."""

    id: ItemId


class AssistantMessage(Struct, tag="assistant", tag_field="role", gc=False):
    """An earlier answer, with the extra keys that some dialects want back word for word."""

    role: ClassVar[str] = "assistant"
    content: str | Annotated[list[TextPart | RefusalPart], Meta(max_length=MAX_PARTS)] | None = None
    name: Label | None = None
    refusal: str | None = None
    audio: AudioReference | None = None
    tool_calls: Annotated[list[FunctionToolCall | CustomToolCall], Meta(max_length=MAX_CALLS)] | None = None
    function_call: FunctionArguments | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: Raw | UnsetType = UNSET
    thinking_blocks: Raw | UnsetType = UNSET
    images: Raw | UnsetType = UNSET


class ToolMessage(Struct, tag="tool", tag_field="role", gc=False):
    """What a tool answered to an earlier call."""

    role: ClassVar[str] = "tool"
    content: TextContent
    tool_call_id: ItemId


class FunctionMessage(Struct, tag="function", tag_field="role", gc=False):
    """What a function answered, in the legacy form."""

    role: ClassVar[str] = "function"
    content: str | None
    name: Label


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage

# Tools -------------------------------------------------------------------------------------------------------------


class FunctionDefinition(Struct, gc=False, omit_defaults=True):
    """A function the model may call; `parameters` is its JSON Schema, an object."""

    name: Name
    description: str | None = None
    parameters: Raw | UnsetType = UNSET
    strict: bool | None = None


class Grammar(Struct, gc=False):
    """A grammar in the named notation."""

    definition: str
    syntax: Literal["lark", "regex"]


class TextFormat(Struct, tag="text", tag_field="type", gc=False):
    """Plain text: of a custom tool's input, or of the answer."""


class GrammarFormat(Struct, tag="grammar", tag_field="type", gc=False):
    """A custom tool's input must follow a grammar."""

    grammar: Grammar


class CustomDefinition(Struct, gc=False, omit_defaults=True):
    """A tool with free-form input."""

    name: Name
    description: str | None = None
    format: TextFormat | GrammarFormat | None = None


class FunctionTool(Struct, tag="function", tag_field="type", gc=False):
    """A function tool."""

    function: FunctionDefinition


class CustomTool(Struct, tag="custom", tag_field="type", gc=False):
    """A custom tool; only OpenAI's own upstreams know these."""

    custom: CustomDefinition


Tool = FunctionTool | CustomTool


class Named(Struct, gc=False):
    """A name, where the wire wraps one in an object."""

    name: NonEmpty


class FunctionChoice(Struct, tag="function", tag_field="type", gc=False):
    """Call this function."""

    function: Named


class CustomChoice(Struct, tag="custom", tag_field="type", gc=False):
    """Call this custom tool."""

    custom: Named


class AllowedTools(Struct, gc=False):
    """The tools among which the model may choose."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[FunctionChoice | CustomChoice], Meta(max_length=128)]


class AllowedChoice(Struct, tag="allowed_tools", tag_field="type", gc=False):
    """Choose among these tools only."""

    allowed_tools: AllowedTools


ToolChoice = Literal["none", "auto", "required"] | FunctionChoice | CustomChoice | AllowedChoice
