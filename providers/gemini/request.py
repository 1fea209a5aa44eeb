"""The body of a chat request in Gemini's words (docs/providers/gemini.md).

`chat_body(request, flags, …)` is pure. JSON schemas and arguments stay the caller's own text. Sharp edge: the caller's
`fields` are never forwarded here, so what has no row below is not sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from gateway import ChatRequest
from gateway.errors import OutOfRange, UnsupportedParameter, UnsupportedValue
from gateway.schemas.chat_messages import AllowedChoice, CustomChoice, FunctionChoice, FunctionTool
from gateway.schemas.chat_options import JSONObjectFormat, JSONSchemaFormat

from .._shared.reasoning_effort import limit_with_budget
from .contents import contents_of
from .model_flags import ModelFlags
from .voices import speech_config

MAX_CANDIDATES = 8
_SEEDS = 2**31  # Gemini's seeds are 32-bit; larger ones wrap, so that the same seed stays the same seed

_encoder = msgspec.json.Encoder()


def chat_body(
    request: ChatRequest, flags: ModelFlags, *, safety: Sequence[Mapping[str, str]], voices: Mapping[str, str]
) -> bytes:
    """The JSON to send; raises BadRequest errors for what only a look into the values shows to be impossible."""
    body = contents_of(request, signatures=flags.signatures)
    body.update(_tools(request))
    config = {**_sampling(request), **_limits(request, flags), **_format(request), **_audio(request, voices)}
    if config:
        body["generationConfig"] = config
    if safety:
        body["safetySettings"] = safety
    return _encoder.encode(body)


def _sampling(request: ChatRequest) -> dict[str, Any]:
    if request.choices > MAX_CANDIDATES:
        raise OutOfRange(
            f"Invalid 'n': this model gives at most {MAX_CANDIDATES} choices.",
            code="integer_above_max_value",
            param="n",
        )
    values = {
        "temperature": request.temperature,
        "topP": request.top_p,
        "stopSequences": [request.stop] if isinstance(request.stop, str) else request.stop,
        "seed": None if request.seed is None else request.seed % _SEEDS,
        "candidateCount": request.choices if request.choices > 1 else None,
        "presencePenalty": request.presence_penalty,
        "frequencyPenalty": request.frequency_penalty,
        "responseLogprobs": request.logprobs or None,
        "logprobs": request.top_logprobs,
    }
    return {name: value for name, value in values.items() if value is not None}


def _limits(request: ChatRequest, flags: ModelFlags) -> dict[str, Any]:
    """Output limit and thinking, which spends from the same limit."""
    limit, effort = request.max_output, request.reasoning_effort
    out: dict[str, Any] = {}
    if effort is not None and flags.thinking == "level":
        out["thinkingConfig"] = {"thinkingLevel": flags.level(effort), "includeThoughts": True}
    elif effort is not None and flags.thinking == "budget":
        budget = flags.budget(effort)
        if limit is not None:
            # The caller's limit holds the thoughts too, and money may have lowered it: it stays.
            limit, room = limit_with_budget(
                limit, budget, most=flags.max_output_tokens, fixed=True, least=max(flags.least_thought, 1)
            )
            budget = max(room, flags.least_budget)
        # Asking for thoughts where there are none is refused.
        out["thinkingConfig"] = {"thinkingBudget": budget, **({"includeThoughts": True} if budget else {})}
    if limit is not None:
        out["maxOutputTokens"] = limit
    return out


def _format(request: ChatRequest) -> dict[str, Any]:
    wanted = request.response_format
    if not isinstance(wanted, JSONObjectFormat | JSONSchemaFormat):
        return {}
    out: dict[str, Any] = {"responseMimeType": "application/json"}
    if isinstance(wanted, JSONSchemaFormat) and wanted.json_schema.schema is not UNSET:
        out["responseJsonSchema"] = wanted.json_schema.schema
    return out


def _audio(request: ChatRequest, voices: Mapping[str, str]) -> dict[str, Any]:
    if request.audio is None or "audio" not in (request.modalities or ()):
        return {}
    streamed = bool(request.stream)
    if request.audio.format != "pcm16" and (streamed or request.audio.format != "wav"):
        fits = "'pcm16' when streaming" if streamed else "'wav' and 'pcm16'"
        raise UnsupportedValue(f"This model makes {fits} only.", param="audio.format")
    voice = request.audio.voice
    name = voice if isinstance(voice, str) else voice.id
    return {"responseModalities": ["AUDIO"], "speechConfig": speech_config(name, voices, "audio.voice")}


# Tools -------------------------------------------------------------------------------------------------------------


def _tools(request: ChatRequest) -> dict[str, Any]:
    declared = _declarations(request)
    if not declared:
        return {}
    choice = request.as_tool_choice
    config: dict[str, Any] | None = None
    if isinstance(choice, AllowedChoice):
        allowed = [_function_name(one) for one in choice.allowed_tools.tools]
        if choice.allowed_tools.mode == "required":
            config = {"mode": "ANY", "allowedFunctionNames": allowed}
        else:  # AUTO takes no list of names, so the others are not shown at all
            declared = [one for one in declared if one["name"] in allowed]
    elif isinstance(choice, FunctionChoice | CustomChoice):
        config = {"mode": "ANY", "allowedFunctionNames": [_function_name(choice)]}
    elif choice is not None:
        config = {"mode": {"none": "NONE", "auto": "AUTO", "required": "ANY"}[choice]}
    out: dict[str, Any] = {"tools": [{"functionDeclarations": declared}]} if declared else {}
    if config is not None:
        out["toolConfig"] = {"functionCallingConfig": config}
    return out


def _declarations(request: ChatRequest) -> list[dict[str, Any]]:
    out = []
    for position, tool in enumerate(request.as_tools):
        if not isinstance(tool, FunctionTool):
            raise UnsupportedParameter("This model does not support custom tools.", param=f"tools[{position}].type")
        function = tool.function
        declaration: dict[str, Any] = {"name": function.name}
        if function.description:
            declaration["description"] = function.description
        if function.parameters is not UNSET:
            declaration["parametersJsonSchema"] = function.parameters
        out.append(declaration)
    return out


def _function_name(choice: FunctionChoice | CustomChoice) -> str:
    if isinstance(choice, CustomChoice):
        raise UnsupportedParameter("This model does not support custom tools.", param="tool_choice")
    return choice.function.name
