"""What a Gemini request demands beside its conversation, in the fields of a chat request.

A field that chat has no word for is left out and named in `left_out`; a demand that only an upstream of this dialect
can meet is named in `only_native`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, field

from gateway.schemas.gemini_options import (
    OPAQUE_CONFIG,
    CallingConfig,
    Declaration,
    GeminiTool,
    GenerationConfig,
    ThinkingConfig,
    ToolConfig,
    Tools,
)
from gateway.schemas.gemini_schema import json_schema
from gateway.schemas.schema_errors import invalid

CONFIG, CALLING = "generationConfig", "toolConfig.functionCallingConfig"
MAX_STOPS = 4  # of a chat request
JSON_TYPE, TEXT_TYPE = "application/json", "text/plain"
LEVELS = ("minimal", "low", "medium", "high", "xhigh")
#: The most tokens of thinking for an effort, from the lowest.
BUDGETS = ((0, "none"), (512, "minimal"), (1024, "low"), (8192, "medium"), (24_576, "high"))
DYNAMIC = -1  # a budget that the model chooses


class ChatTerms(Struct):
    """Fields of the chat request, and what they do not say."""

    fields: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    only_native: str = ""


def chat_terms(tools: Tools | None, use: ToolConfig | None, config: GenerationConfig | None) -> ChatTerms:
    """The fields of the chat request, except for its model, its messages and what names Google's own tools."""
    terms = ChatTerms()
    names = _add_tools(terms, tools)
    calling = use.function_calling_config if use is not None else None
    if calling is not None:
        _add_choice(terms, calling, names)
    if config is not None:
        _add_sampling(terms, config)
        _add_format(terms, config)
        effort = _effort(config.thinking_config)
        if effort is not None:
            terms.fields["reasoning_effort"] = effort
    return terms


# Tools ---------------------------------------------------------------------------------------------------------------


def tool_list(tools: Tools | None) -> list[GeminiTool]:
    """The tools, of which one may come without a list."""
    if tools is None:
        return []
    return tools if isinstance(tools, list) else [tools]


def _add_tools(terms: ChatTerms, tools: Tools | None) -> set[str]:
    """Write the functions; returns their names."""
    written, names = [], set[str]()
    for position, tool in enumerate(tool_list(tools)):
        at = f"tools[{position}]" if isinstance(tools, list) else "tools"
        for number, declared in enumerate(tool.functions):
            path = f"{at}.functionDeclarations[{number}]"
            if declared.name in names:
                raise invalid(f"{path}.name", "another function has the same name")
            names.add(declared.name)
            written.append({"type": "function", "function": _function(declared, path)})
    if written:
        terms.fields["tools"] = written
    return names


def _function(declared: Declaration, path: str) -> dict[str, Any]:
    function: dict[str, Any] = {"name": declared.name}
    if declared.description:
        function["description"] = declared.description
    schema = json_schema(
        declared.parameters, declared.parameters_json_schema, f"{path}.parameters", f"{path}.parametersJsonSchema"
    )
    if schema is not None:
        function["parameters"] = schema
    return function


def _add_choice(terms: ChatTerms, calling: CallingConfig, names: set[str]) -> None:
    mode, allowed = calling.mode, calling.allowed_function_names or []
    for position, name in enumerate(allowed):
        if name not in names:
            raise invalid(f"{CALLING}.allowedFunctionNames[{position}]", "it names a function that is not declared")
    if mode == "ANY" and not names:
        raise invalid(f"{CALLING}.mode", "it demands a function, and none is declared")
    if not names or mode in (None, "MODE_UNSPECIFIED"):
        return
    if mode == "NONE":
        terms.fields["tool_choice"] = "none"
    elif not allowed:
        terms.fields["tool_choice"] = "required" if mode == "ANY" else "auto"
    elif mode == "ANY" and len(allowed) == 1:
        terms.fields["tool_choice"] = {"type": "function", "function": {"name": allowed[0]}}
    else:
        tools = [{"type": "function", "function": {"name": name}} for name in allowed]
        demand = "required" if mode == "ANY" else "auto"
        terms.fields["tool_choice"] = {"type": "allowed_tools", "allowed_tools": {"mode": demand, "tools": tools}}


# Generation ----------------------------------------------------------------------------------------------------------


def _add_sampling(terms: ChatTerms, config: GenerationConfig) -> None:
    top_k = config.top_k
    values = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": int(top_k) if top_k is not None and top_k.is_integer() else top_k,
        "max_tokens": config.max_output_tokens,
        "n": config.candidate_count,
        "seed": config.seed,
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "logprobs": config.response_logprobs,
        "top_logprobs": config.logprobs if config.response_logprobs else None,
    }
    terms.fields |= {name: value for name, value in values.items() if value is not None}
    stops = config.stop_sequences or []
    if stops:
        terms.fields["stop"] = stops[:MAX_STOPS]
    if len(stops) > MAX_STOPS:
        terms.left_out.append(f"{CONFIG}.stopSequences")


def _add_format(terms: ChatTerms, config: GenerationConfig) -> None:
    kind = config.response_mime_type or TEXT_TYPE
    schema = json_schema(
        config.response_schema,
        config.response_json_schema,
        f"{CONFIG}.responseSchema",
        f"{CONFIG}.responseJsonSchema",
    )
    if kind == JSON_TYPE and schema is not None:
        terms.fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    elif kind == JSON_TYPE:
        terms.fields["response_format"] = {"type": "json_object"}
    elif kind != TEXT_TYPE:
        terms.only_native = f"{CONFIG}.responseMimeType"
    elif schema is not None:
        raise invalid(f"{CONFIG}.responseMimeType", f"a schema of the answer needs '{JSON_TYPE}'")
    if any(modality.upper() != "TEXT" for modality in config.response_modalities or ()):
        terms.only_native = f"{CONFIG}.responseModalities"


def _effort(thinking: ThinkingConfig | None) -> str | None:
    """The effort that the thinking amounts to; None for the model's default."""
    if thinking is None:
        return None
    budget, level = thinking.thinking_budget, (thinking.thinking_level or "").lower()
    if level in LEVELS:
        return level
    if budget is None or budget == DYNAMIC:
        return None
    return next((effort for most, effort in BUDGETS if budget <= most), "xhigh")


def opaque_config(fields: dict[str, Raw]) -> list[str]:
    """The fields of `generationConfig` that no chat request has, as `left_out` names them."""
    return [f"{CONFIG}.{name}" for name in fields if name in OPAQUE_CONFIG]
