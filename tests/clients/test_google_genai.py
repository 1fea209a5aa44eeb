"""Google's own Python SDK, unmodified, over an upstream of OpenAI's dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.genai import types
from google.genai.errors import APIError, ClientError
from pydantic import BaseModel

from gateway.sse import encode_data
from gateway.testing import Reply, RunningGateway, running_gateway

from .conftest import _gateway
from .independent import KEY
from .scripted import TIDE_ANSWER, TIDE_STREAM, ScriptedUpstream, chunk, completion

pytestmark = pytest.mark.clients


CONFIG = """
[providers.scripted]
plugin = "openai"
base_url = "{scripted}"
api_key = "file:{key_file}"

[groups.default]
[groups.nobody]

[models.scripted]
provider = "scripted"
price = {{ input = 1, output = 2 }}

[models.closed]
provider = "scripted"
groups = ["nobody"]
price = {{ input = 1, output = 2 }}

[models.vectors]
provider = "scripted"
endpoints = ["embeddings"]
price = {{ input = 1 }}
"""


class Tide(BaseModel):
    """A structured answer."""

    port: str
    metres: int


TIDE = types.FunctionDeclaration(
    name="tide",
    description="Height of the tide",
    parameters=types.Schema(type=types.Type.OBJECT, properties={"port": types.Schema(type=types.Type.STRING)}),
)
TOOLS = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[TIDE])])


@pytest.fixture(scope="module")
def served(scripted_server: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway over the scripted upstream alone."""
    key_file = tmp_path_factory.mktemp("secret") / "key"
    key_file.write_text(KEY)
    with running_gateway(CONFIG.format(scripted=scripted_server.base_url, key_file=key_file)) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def poor_key(served: RunningGateway) -> str:
    """A key whose account cannot pay for anything."""
    _gateway(served, "accounts", "create", "poor", "--balance", "0.000000001")
    return _gateway(served, "keys", "create", "poor").strip()


def made(served: RunningGateway, key: str) -> genai.Client:
    """A client as the documentation of the SDK makes it."""
    address = served.base_url.removesuffix("/v1")
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=address))


@pytest.fixture
def client(served: RunningGateway) -> Iterator[genai.Client]:
    """A client with a good key."""
    client = made(served, served.api_key)
    yield client
    client.close()


def test_whole_answer_has_text_and_usage(client: genai.Client, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(completion({"content": "Hello there."})))
    answer = client.models.generate_content(
        model="scripted",
        contents="Hello",
        config=types.GenerateContentConfig(system_instruction="Be brief", temperature=0.5, max_output_tokens=64),
    )
    assert answer.text == "Hello there."
    assert answer.model_version == "scripted" and answer.response_id
    assert answer.usage_metadata is not None and answer.usage_metadata.total_token_count
    sent = scripted.seen[0].json
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert (sent["temperature"], sent["max_tokens"]) == (0.5, 64)


def test_stream_has_the_text_one_finish_and_the_usage(client: genai.Client, scripted: ScriptedUpstream) -> None:
    frames = [chunk({"role": "assistant", "content": "Hel"}), chunk({"content": "lo"}), chunk(finish="stop")]
    scripted.enqueue(Reply.stream(frames))
    found = list(client.models.generate_content_stream(model="scripted", contents="Hello"))
    assert "".join(one.text or "" for one in found) == "Hello"
    reasons = [one.candidates[0].finish_reason for one in found if one.candidates]
    assert [reason for reason in reasons if reason] == [types.FinishReason.STOP]
    assert found[-1].usage_metadata is not None


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")  # the SDK's own
def test_stream_of_the_asynchronous_client(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    async def read() -> str:
        client = made(served, served.api_key)
        stream = await client.aio.models.generate_content_stream(model="scripted", contents="Hello")
        text = "".join([one.text or "" async for one in stream])
        await client.aio.aclose()
        return text

    scripted.enqueue(Reply.stream([chunk({"role": "assistant", "content": "Hello"}), chunk(finish="stop")]))
    assert asyncio.run(read()) == "Hello"


def test_function_is_called_and_its_result_goes_back(client: genai.Client, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(TIDE_ANSWER), Reply.json(completion({"content": "Six metres."})))
    chat = client.chats.create(model="scripted", config=TOOLS)
    [call, *_] = chat.send_message("How high is the tide?").function_calls or []
    assert call.name == "tide" and call.args is not None and "port" in call.args
    result = types.Part.from_function_response(name="tide", response={"result": "6"})
    assert chat.send_message([result]).text == "Six metres."
    messages = scripted.seen[1].json["messages"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]


def test_parallel_calls_of_a_stream(client: genai.Client, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TIDE_STREAM)
    found = client.models.generate_content_stream(model="scripted", contents="Hello", config=TOOLS)
    calls = [call for one in found for call in one.function_calls or []]
    assert calls and all(isinstance(call.args, dict) for call in calls)


def test_structured_answer_is_parsed(client: genai.Client, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(completion({"content": '{"port": "Brest", "metres": 6}'})))
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=Tide)
    answer = client.models.generate_content(model="scripted", contents="Hello", config=config)
    assert answer.parsed == Tide(port="Brest", metres=6)
    schema = scripted.seen[0].json["response_format"]["json_schema"]["schema"]
    assert schema["type"] == "object" and schema["properties"]["metres"]["type"] == "integer"


def test_image_goes_to_the_upstream(client: genai.Client, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(completion({"content": "A dot."})))
    contents: Any = ["What is it?", types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png")]
    assert client.models.generate_content(model="scripted", contents=contents).text == "A dot."
    [_, image] = scripted.seen[0].json["messages"][0]["content"]
    assert image["image_url"]["url"] == "data:image/png;base64,iVBORw=="


def test_errors_are_the_sdks_own(served: RunningGateway, client: genai.Client, poor_key: str) -> None:
    for key, model, code, status in (
        (served.api_key, "closed", 403, "PERMISSION_DENIED"),
        ("sk-unknown", "scripted", 401, "UNAUTHENTICATED"),
        (poor_key, "scripted", 402, "RESOURCE_EXHAUSTED"),
    ):
        refusing = made(served, key)
        with pytest.raises(ClientError) as refused:
            refusing.models.generate_content(model=model, contents="Hello")
        assert (refused.value.code, refused.value.status) == (code, status)
        assert refused.value.message


def test_stream_that_is_cut_raises(client: genai.Client, scripted: ScriptedUpstream) -> None:
    frame = encode_data(json.dumps(chunk({"role": "assistant", "content": "Hel"})).encode())
    scripted.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=[frame], end="cut"))
    found: list[types.GenerateContentResponse] = []
    with pytest.raises(APIError) as failed:
        found.extend(client.models.generate_content_stream(model="scripted", contents="Hello"))
    assert failed.value.code == 502
    assert all(one.candidates is None or one.candidates[0].finish_reason is None for one in found)


def test_models_tokens_and_vectors(client: genai.Client) -> None:
    names = [model.name for model in client.models.list()]
    assert "models/scripted" in names and "models/closed" not in names
    assert client.models.get(model="scripted").display_name == "scripted"
    assert client.models.count_tokens(model="scripted", contents="Hello").total_tokens
    answer = client.models.embed_content(model="vectors", contents=["one", "two"])
    assert [len(one.values or []) > 0 for one in answer.embeddings or []] == [True, True]
