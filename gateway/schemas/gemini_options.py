"""What a Gemini request has beside its conversation: tools, their use, how to generate (docs/fields.md, "Gemini")."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct

from gateway.schemas.chat_messages import NonEmpty
from gateway.schemas.gemini_contents import FunctionName, Opaque

Tokens = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class Declaration(Struct, rename="camel", gc=False):
    """A function that the model may call, with its parameters in either of Google's two notations."""

    name: FunctionName
    description: str | None = None
    parameters: Opaque = UNSET
    parameters_json_schema: Opaque = UNSET


class GeminiTool(Struct, rename="camel"):
    """Functions; Google's own tools are other keys of the same object."""

    function_declarations: Declaration | Annotated[list[Declaration], Meta(max_length=128)] | None = None

    @property
    def functions(self) -> list[Declaration]:
        """The functions."""
        declared = self.function_declarations
        if declared is None:
            return []
        return declared if isinstance(declared, list) else [declared]


Tools = GeminiTool | Annotated[list[GeminiTool], Meta(max_length=128)]


class CallingConfig(Struct, rename="camel", gc=False):
    """Whether the model must call functions, and which."""

    mode: Literal["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"] | None = None
    allowed_function_names: list[NonEmpty] | None = None


class ToolConfig(Struct, rename="camel", gc=False):
    """How tools are used."""

    function_calling_config: CallingConfig | None = None


class ThinkingConfig(Struct, rename="camel", gc=False):
    """How much the model thinks, and whether its thoughts are in the answer."""

    include_thoughts: bool | None = None
    thinking_budget: Annotated[int, Meta(ge=-1, le=10_000_000)] | None = None
    thinking_level: str | None = None


class GenerationConfig(Struct, rename="camel"):
    """How to generate; `OPAQUE_CONFIG` has the fields that only upstreams of this dialect read."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None
    max_output_tokens: Tokens | None = None
    stop_sequences: list[NonEmpty] | None = None
    candidate_count: Annotated[int, Meta(ge=1, le=8)] | None = None
    response_mime_type: str | None = None
    response_schema: Opaque = UNSET
    response_json_schema: Opaque = UNSET
    thinking_config: ThinkingConfig | None = None
    seed: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    response_logprobs: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_modalities: list[str] | None = None


#: Fields of `generationConfig` that have no word in a chat request.
OPAQUE_CONFIG = frozenset(
    {"audioTimestamp", "enableEnhancedCivicAnswers", "imageConfig", "mediaResolution", "speechConfig"}
)
