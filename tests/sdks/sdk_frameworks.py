"""Frameworks and SDKs that are not part of the usual tests, unmodified and as their own pages set them up.

Their packages are those of `tox -e sdks`. They are imported by name, so that the type checks do not need them.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from gateway.testing import Reply, RunningGateway
from tests.clients.scripted import BROKEN_STREAM, TEXT_STREAM, TIDE_ANSWER, TIDE_STREAM, ScriptedUpstream, completion

METRES = Reply.json(completion({"content": "Six metres."}))
RECORD = Reply.json(completion({"content": '{"port": "Brest", "metres": 6}'}))
ASKED = "What tide at Brest?"


class Tide(BaseModel):
    """A structured answer."""

    port: str
    metres: int


@tool
def tide(port: str) -> str:
    """Height of the tide."""
    return f"6 metres at {port}"


def result_of(scripted: ScriptedUpstream) -> Any:
    """What the upstream got as the result of the tool."""
    return scripted.seen[-1].json["messages"][-1]["content"]


# OpenAI Agents SDK, which calls Responses


def agent(served: RunningGateway, **options: Any) -> Any:
    agents, openai = import_module("agents"), import_module("openai")
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=served.base_url, api_key=served.api_key)
    model = agents.OpenAIResponsesModel(model="scripted", openai_client=client)
    return agents.Agent(name="Pilot", instructions="Answer briefly.", model=model, **options)


def test_agents_sdk_runs_a_tool_and_answers(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    agents = import_module("agents")

    def tide(port: str) -> str:
        """Height of the tide."""
        return f"6 metres at {port}"

    scripted.enqueue(Reply.json(TIDE_ANSWER), METRES)
    run = asyncio.run(agents.Runner.run(agent(served, tools=[agents.function_tool(tide)]), ASKED))
    assert run.final_output == "Six metres."
    assert result_of(scripted) == "6 metres at Brest"
    assert run.context_wrapper.usage.total_tokens == 52


def test_agents_sdk_streams(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    async def texts() -> list[str]:
        run = import_module("agents").Runner.run_streamed(agent(served), "Hello")
        return [
            event.data.delta
            async for event in run.stream_events()
            if getattr(event, "data", None) and event.data.type == "response.output_text.delta"
        ]

    scripted.enqueue(TEXT_STREAM)
    assert asyncio.run(texts()) == ["Hel", "lo"]


def test_agents_sdk_gives_the_callers_class(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(RECORD)
    run = asyncio.run(import_module("agents").Runner.run(agent(served, output_type=Tide), ASKED))
    assert run.final_output == Tide(port="Brest", metres=6)


# pydantic-ai in four APIs


def pydantic_model(served: RunningGateway, api: str) -> Any:
    address = served.base_url.removesuffix("/v1")
    if api == "messages":
        provider = import_module("pydantic_ai.providers.anthropic").AnthropicProvider(
            anthropic_client=import_module("anthropic").AsyncAnthropic(base_url=address, api_key=served.api_key)
        )
        return import_module("pydantic_ai.models.anthropic").AnthropicModel("scripted", provider=provider)
    if api == "gemini":
        provider = import_module("pydantic_ai.providers.google").GoogleProvider(
            api_key=served.api_key, base_url=address
        )
        return import_module("pydantic_ai.models.google").GoogleModel("scripted", provider=provider)
    models = import_module("pydantic_ai.models.openai")
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider(
        base_url=served.base_url, api_key=served.api_key
    )
    kind = models.OpenAIResponsesModel if api == "responses" else models.OpenAIChatModel
    return kind("scripted", provider=provider)


APIS = ("chat", "responses", "messages", "gemini")


@pytest.mark.parametrize("api", APIS)
def test_pydantic_ai_runs_a_tool_and_answers(served: RunningGateway, scripted: ScriptedUpstream, api: str) -> None:
    one = import_module("pydantic_ai").Agent(pydantic_model(served, api))

    @one.tool_plain  # type: ignore[untyped-decorator]
    def tide(port: str) -> str:
        """Height of the tide."""
        return f"6 metres at {port}"

    scripted.enqueue(Reply.json(TIDE_ANSWER), METRES)
    assert one.run_sync(ASKED).output == "Six metres."
    assert "6 metres at Brest" in str(result_of(scripted))


@pytest.mark.parametrize("api", APIS)
def test_pydantic_ai_streams(served: RunningGateway, scripted: ScriptedUpstream, api: str) -> None:
    async def text() -> str:
        async with import_module("pydantic_ai").Agent(pydantic_model(served, api)).run_stream("Hello") as run:
            return str(await run.get_output())

    scripted.enqueue(TEXT_STREAM)
    assert asyncio.run(text()) == "Hello"


# LangChain over Responses and Messages


def langchain(served: RunningGateway, api: str) -> Any:
    if api == "messages":
        return import_module("langchain_anthropic").ChatAnthropic(
            model="scripted", base_url=served.base_url.removesuffix("/v1"), api_key=served.api_key, max_tokens=500
        )
    key = SecretStr(served.api_key)
    return ChatOpenAI(model="scripted", base_url=served.base_url, api_key=key, use_responses_api=True, max_retries=0)


LANGCHAIN = ("responses", "messages")


@pytest.mark.parametrize("api", LANGCHAIN)
def test_langchain_binds_tools_and_sends_their_results(
    served: RunningGateway, scripted: ScriptedUpstream, api: str
) -> None:
    model = langchain(served, api).bind_tools([tide])
    scripted.enqueue(Reply.json(TIDE_ANSWER), METRES)
    asked = model.invoke(ASKED)
    (call,) = asked.tool_calls
    answer = model.invoke([("human", ASKED), asked, tide.invoke(call)])
    assert answer.text == "Six metres."
    assert "6 metres at Brest" in str(result_of(scripted))
    assert answer.usage_metadata["total_tokens"] == 26


@pytest.mark.parametrize("api", LANGCHAIN)
def test_langchain_adds_up_streamed_tool_calls(served: RunningGateway, scripted: ScriptedUpstream, api: str) -> None:
    scripted.enqueue(TIDE_STREAM)
    whole: Any = AIMessageChunk(content="")
    for chunk in langchain(served, api).bind_tools([tide]).stream("What tides?"):
        whole += chunk
    assert [call["args"] for call in whole.tool_calls] == [{"port": "Brest"}, {"port": "Cork"}]


@pytest.mark.parametrize("api", LANGCHAIN)
def test_langchain_raises_at_a_broken_stream(served: RunningGateway, scripted: ScriptedUpstream, api: str) -> None:
    scripted.enqueue(BROKEN_STREAM)
    with pytest.raises(Exception, match=r"(?i)upstream|error"):
        list(langchain(served, api).stream("Hello"))


def test_langchain_cohere_ranks_documents(served: RunningGateway) -> None:
    kind, document = import_module("langchain_cohere").CohereRerank, import_module("langchain_core.documents").Document
    address = served.base_url.removesuffix("/v1")
    ranker = kind(model="ranks", base_url=address, cohere_api_key=SecretStr(served.api_key), top_n=2)
    texts = ["the price of tin", "five grey herons", "a grey morning"]
    found = ranker.compress_documents([document(page_content=text) for text in texts], "grey herons")
    scores = [(one.page_content, one.metadata["relevance_score"]) for one in found]
    assert scores == [("five grey herons", 1.0), ("a grey morning", 0.5)]


# LlamaIndex and LiteLLM as clients


def test_llama_index_chats_and_streams(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    kind = import_module("llama_index.llms.openai_like").OpenAILike
    model = kind(model="scripted", api_base=served.base_url, api_key=served.api_key, is_chat_model=True)
    message = import_module("llama_index.core.llms").ChatMessage(role="user", content="Hello")
    scripted.enqueue(METRES, TEXT_STREAM)
    assert model.chat([message]).message.content == "Six metres."
    assert "".join(part.delta or "" for part in model.stream_chat([message])) == "Hello"


def test_llama_index_ranks_nodes(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    schema = import_module("llama_index.core.schema")
    kind = import_module("llama_index.postprocessor.cohere_rerank").CohereRerank
    ranker = kind(model="ranks", base_url=served.base_url.removesuffix("/v1"), api_key=served.api_key, top_n=2)
    texts = ["the price of tin", "five grey herons", "a grey morning"]
    nodes = [schema.NodeWithScore(node=schema.TextNode(text=text), score=0.0) for text in texts]
    found = ranker.postprocess_nodes(nodes, query_str="grey herons")
    assert [(one.node.text, one.score) for one in found] == [("five grey herons", 1.0), ("a grey morning", 0.5)]


@pytest.mark.parametrize("prefix", ["openai", "anthropic"])
def test_litellm_calls_the_gateway(served: RunningGateway, scripted: ScriptedUpstream, prefix: str) -> None:
    litellm = import_module("litellm")
    address = served.base_url if prefix == "openai" else served.base_url.removesuffix("/v1")
    options: dict[str, Any] = {
        "model": f"{prefix}/scripted",
        "api_base": address,
        "api_key": served.api_key,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 100,
    }
    scripted.enqueue(METRES, TEXT_STREAM)
    assert litellm.completion(**options).choices[0].message.content == "Six metres."
    parts = [part.choices[0].delta.content or "" for part in litellm.completion(**options, stream=True)]
    assert "".join(parts) == "Hello"


def test_litellm_calls_responses(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    litellm = import_module("litellm")
    scripted.enqueue(METRES)
    answer = litellm.responses(model="openai/scripted", input="Hello", api_base=served.base_url, api_key=served.api_key)
    assert answer.output[-1].content[0].text == "Six metres."
