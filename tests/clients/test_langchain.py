"""langchain-openai's ChatOpenAI, unmodified: invoke, stream, tools, structured output, usage, and their async forms."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from gateway.testing import Reply, RunningGateway

from .independent import SENTENCE
from .scripted import BROKEN_STREAM, TIDE_STREAM, ScriptedUpstream, completion

pytestmark = pytest.mark.clients


class Tide(BaseModel):
    """A structured answer."""

    port: str
    metres: int


@tool
def tide(port: str) -> str:
    """Height of the tide."""
    return f"6 metres at {port}"


def chat(served: RunningGateway, model: str, **options: Any) -> ChatOpenAI:
    """A model as an application makes it."""
    return ChatOpenAI(
        model=model, base_url=served.base_url, api_key=SecretStr(served.api_key), max_retries=0, **options
    )


def test_invoke_answers_with_usage(served: RunningGateway) -> None:
    answer = chat(served, "words", temperature=0).invoke("Hello")
    assert answer.content == SENTENCE
    assert answer.response_metadata["model_name"] == "words"
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["total_tokens"] > 0


def test_stream_has_the_whole_text_and_ends_with_usage(served: RunningGateway) -> None:
    chunks = list(chat(served, "words", stream_usage=True).stream("Hello"))
    whole = AIMessageChunk(content="")
    for chunk in chunks:
        whole += chunk
    assert whole.content == SENTENCE
    assert len(chunks) > 3
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] > 0


def test_usage_of_a_stream_is_sent_only_if_requested(served: RunningGateway) -> None:
    assert all(chunk.usage_metadata is None for chunk in chat(served, "words", stream_usage=False).stream("Hello"))


async def test_async_methods_give_the_same_results(served: RunningGateway) -> None:
    model = chat(served, "words")
    assert (await model.ainvoke("Hello")).content == SENTENCE
    assert "".join([str(chunk.content) async for chunk in model.astream("Hello")]) == SENTENCE
    assert [answer.content for answer in await model.abatch(["One", "Two"])] == [SENTENCE] * 2


def test_bound_tools_are_called_and_their_results_sent_back(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    asked = chat(served, "tide").bind_tools([tide]).invoke("What tide at Brest?")
    (call,) = asked.tool_calls
    assert (call["name"], call["args"]) == ("tide", {"port": "Brest"})

    scripted.enqueue(Reply.json(completion({"content": "Six metres."})))
    result = tide.invoke(call)
    assert isinstance(result, ToolMessage)
    messages = [HumanMessage("What tide at Brest?"), asked, result]
    answer = chat(served, "scripted").bind_tools([tide]).invoke(messages)
    assert answer.content == "Six metres."
    assert scripted.seen[0].json["messages"][2]["content"] == "6 metres at Brest"


def test_streamed_tool_calls_add_up(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TIDE_STREAM)
    whole: Any = AIMessageChunk(content="")
    for chunk in chat(served, "scripted").bind_tools([tide]).stream("What tides?"):
        whole += chunk
    assert [(call["id"], call["args"]) for call in whole.tool_calls] == [
        ("call_1", {"port": "Brest"}),
        ("call_2", {"port": "Cork"}),
    ]


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_structured_output_becomes_the_callers_class(served: RunningGateway, method: Any) -> None:
    structured = chat(served, "record").with_structured_output(Tide, method=method)
    assert structured.invoke("What tide at Brest, as JSON?") == Tide(port="Brest", metres=6)


def test_structured_output_by_a_forced_tool(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "Tide", "arguments": '{"port": "Brest", "metres": 6}'}}
    scripted.enqueue(Reply.json(completion({"content": None, "tool_calls": [call]}, finish="tool_calls")))
    structured = chat(served, "scripted").with_structured_output(Tide, method="function_calling")
    assert structured.invoke("What tide at Brest?") == Tide(port="Brest", metres=6)
    assert scripted.seen[0].json["tool_choice"] == {"type": "function", "function": {"name": "Tide"}}


def test_refusals_and_broken_streams_are_raised(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    with pytest.raises(openai.PermissionDeniedError, match="Model not permitted"):
        chat(served, "closed").invoke("Hello")
    scripted.enqueue(BROKEN_STREAM)
    with pytest.raises(openai.APIError):
        list(chat(served, "scripted").stream("Hello"))
