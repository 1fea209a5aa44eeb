"""The conversation of a Gemini request: contents by role, with parts of one kind each (docs/fields.md, "Gemini").

What nobody in the gateway reads is `Raw`. Field names are in camel case here; `gateway.schemas.gemini_names` writes
requests that use snake case anew. Google's parser takes a single object where a list is expected, and so does this one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from gateway.schemas.chat_messages import MAX_PARTS, ItemId, Label, NonEmpty

FunctionName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$(?!\n)")]
Opaque = Raw | UnsetType


class InlineData(Struct, rename="camel", gc=False):
    """Content inside the request, as base64."""

    mime_type: NonEmpty
    data: NonEmpty


class FileReference(Struct, rename="camel", gc=False):
    """Content at an address."""

    file_uri: NonEmpty
    mime_type: Label | None = None


class PastCall(Struct, gc=False):
    """A function that the model called; `args` is an object."""

    name: FunctionName
    id: ItemId | None = None
    args: Opaque = UNSET


class ResponsePart(Struct, rename="camel", gc=False):
    """Media of a function's result."""

    inline_data: InlineData | None = None
    file_data: FileReference | None = None


class FunctionResult(Struct, gc=False):
    """What a function returned; `response` is an object."""

    name: FunctionName
    id: ItemId | None = None
    response: Opaque = UNSET
    parts: Annotated[list[ResponsePart], Meta(max_length=MAX_PARTS)] | None = None


class ExecutableCode(Struct, gc=False):
    """Code that the model wrote for Google to run."""

    code: str = ""


class CodeResult(Struct, gc=False):
    """What that code printed."""

    output: str = ""


class ContentPart(Struct, rename="camel"):
    """One part: exactly one of its kinds is there; `thought` and `thought_signature` may be beside it."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    inline_data: InlineData | None = None
    file_data: FileReference | None = None
    function_call: PastCall | None = None
    function_response: FunctionResult | None = None
    executable_code: ExecutableCode | None = None
    code_execution_result: CodeResult | None = None


Parts = ContentPart | Annotated[list[ContentPart], Meta(max_length=MAX_PARTS)]


class Content(Struct):
    """One turn."""

    parts: Parts | None = None
    role: Literal["user", "model", "function"] | None = None

    @property
    def each_part(self) -> list[ContentPart]:
        """The parts."""
        if self.parts is None:
            return []
        return self.parts if isinstance(self.parts, list) else [self.parts]


Contents = Content | Annotated[list[Content], Meta(min_length=1, max_length=100_000)]
