"""The `gemini` provider against Google's own SDK: it reads our fixtures, and writes the bodies that we write.

Neither knows of the other: the SDK's types refuse keys they do not know, and the SDK itself is pointed at the same fake
server, where what it sends and what it reads is compared with ours.
"""

from __future__ import annotations

import base64
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from google import genai
from google.genai import types
from google.genai.errors import APIError
from google.oauth2.credentials import Credentials

from gateway import Target
from gateway.errors import GatewayError
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.embeddings import decode_embedding_request
from gateway.testing import FakeUpstream, Reply
from gateway_providers.gemini.finish import FAILED, FILTERED, VAGUE
from gateway_providers.gemini.images import image_body
from gateway_providers.gemini.model_flags import ModelFlags
from gateway_providers.gemini.request import chat_body
from tests.providers.gemini_upstream import (
    CALL_STREAM,
    CALLS,
    CANDIDATES,
    DOCUMENTS,
    KEY,
    PNG,
    SIGNATURE,
    STREAM,
    TARGET,
    THOUGHT,
    answer_to,
    chat_request,
    chunks_of,
    gemini,
    google_error,
    provider,
    sent,
    sse,
)
from tests.providers.test_gemini_endpoints import picture

# The SDK extends aiohttp's session, which aiohttp discourages.
SDK_WARNING = "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings(SDK_WARNING)]

MODEL = "gemini-2.5-flash"


@contextlib.asynccontextmanager
async def sdk(fake: FakeUpstream) -> AsyncIterator[Any]:
    """Google's asynchronous client, pointed at `fake`; it does not try again."""
    retry = types.HttpRetryOptions(attempts=1)
    options = types.HttpOptions(base_url=fake.url, api_version="v1beta", retry_options=retry)
    client = genai.Client(api_key=KEY, http_options=options).aio
    try:
        yield client.models
    finally:
        await client.aclose()


async def sdk_body(contents: Any, config: dict[str, Any] | None = None, *, model: str = MODEL) -> Any:
    """What the SDK sends for the same request."""
    async with FakeUpstream() as fake, sdk(fake) as models:
        fake.enqueue(Reply.json(DOCUMENTS[0]))
        given = types.GenerateContentConfig(**config) if config else None
        await models.generate_content(model=model, contents=contents, config=given)
        return plain(fake.seen[0].json)


def plain(value: Any) -> Any:
    """The SDK's spelling made Google's documented one: it writes some names with underscores, bytes in the URL-safe
    alphabet, and objects without content; Google's servers take either."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {_camel(name): _standard(name, plain(item)) for name, item in value.items() if item != {}}
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _standard(name: str, value: Any) -> Any:
    is_bytes = name in {"data", "thoughtSignature", "thought_signature"}
    return value.replace("-", "+").replace("_", "/") if is_bytes else value


# What Google's servers say -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_fixture_is_valid_for_the_vendors_types(document: dict[str, Any]) -> None:
    parsed = types.GenerateContentResponse.model_validate(document)
    assert parsed.response_id == "mAITaLnzBJTM"


def test_every_finish_reason_that_the_sdk_knows_is_in_our_table() -> None:
    known = {reason.value for reason in types.FinishReason}
    assert known == FILTERED | FAILED | VAGUE | {"STOP", "MAX_TOKENS", "NO_IMAGE"}


async def test_sdk_and_provider_read_the_same_whole_answer() -> None:
    for document in (THOUGHT, CALLS, CANDIDATES):
        async with FakeUpstream() as fake, sdk(fake) as models:
            fake.enqueue(Reply.json(document))
            theirs = await models.generate_content(model=MODEL, contents="hi")
        ours = await answer_to(document, chat_request(n=2))
        assert len(theirs.candidates) == len(ours.choices)
        for one, choice in zip(theirs.candidates, ours.choices, strict=True):
            texts = [part.text for part in one.content.parts if part.text and not part.thought]
            thoughts = [part.text for part in one.content.parts if part.text and part.thought]
            assert "".join(texts) == (choice.message.content or "")
            assert "".join(thoughts) == (choice.message.reasoning_content or "")
            calls = [part.function_call for part in one.content.parts if part.function_call]
            assert [(call.name, call.args or {}) for call in calls] == [
                (call.function.name, msgspec.json.decode(call.function.arguments))  # type: ignore[union-attr, arg-type]
                for call in choice.message.tool_calls or ()
            ]
        counted = theirs.usage_metadata
        assert ours.usage is not None and ours.usage.prompt_tokens == counted.prompt_token_count
        assert ours.usage.total_tokens == counted.total_token_count


async def test_signature_sent_to_the_caller_is_the_one_the_sdk_reads() -> None:
    parsed = types.GenerateContentResponse.model_validate(CALLS)
    signature = parsed.candidates[0].content.parts[0].thought_signature  # type: ignore[index, union-attr]
    assert signature is not None and signature == base64.b64decode(SIGNATURE)


async def test_sdk_and_provider_read_the_same_stream() -> None:
    for frames in (STREAM, CALL_STREAM):
        async with FakeUpstream() as fake, sdk(fake) as models:
            fake.enqueue(sse(*frames))
            theirs = [chunk async for chunk in await models.generate_content_stream(model=MODEL, contents="hi")]
        chunks = await chunks_of(*frames)

        async def again(chunks: Any = chunks) -> AsyncIterator[Any]:
            for chunk in chunks:
                yield chunk

        ours = await fold_chat(again())
        parts = [part for chunk in theirs for part in chunk.candidates[0].content.parts or ()]
        message = ours.choices[0].message
        assert "".join(part.text for part in parts if part.text and not part.thought) == (message.content or "")
        assert [part.function_call.name for part in parts if part.function_call] == [
            call.function.name for call in message.tool_calls or ()
        ]
        assert ours.usage is not None and ours.usage.total_tokens == theirs[-1].usage_metadata.total_token_count


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "INVALID_ARGUMENT"),
        (403, "PERMISSION_DENIED"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (503, "UNAVAILABLE"),
    ],
)
async def test_error_body_raises_in_sdk_and_provider(status: int, name: str) -> None:
    error = google_error(status, name, "Because.", reason="API_KEY_INVALID", delay="17s")
    async with FakeUpstream() as fake, sdk(fake) as models, provider(fake) as subject:
        fake.enqueue(Reply.json(error, status=status), Reply.json(error, status=status))
        with pytest.raises(APIError) as theirs:
            await models.generate_content(model=MODEL, contents="hi")
        with pytest.raises(GatewayError):
            await subject.chat(chat_request(), TARGET)
    assert (theirs.value.code, theirs.value.message) == (status, "Because.")


# What we say to them -----------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}


async def test_text_and_instructions_equal_those_of_the_sdk() -> None:
    ours = await sent(
        chat_request(
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": "bye"},
        )
    )
    theirs = await sdk_body(
        [
            types.UserContent("hi"),
            types.ModelContent("Yes?"),
            types.UserContent("bye"),
        ],
        {"system_instruction": types.Content(parts=[types.Part(text="Be brief.")])},
    )
    assert ours == theirs


async def test_configuration_equals_that_of_the_sdk() -> None:
    ours = await sent(
        chat_request(
            temperature=0.5,
            top_p=0.9,
            stop=["END"],
            seed=7,
            n=2,
            presence_penalty=0.5,
            frequency_penalty=0.25,
            logprobs=True,
            top_logprobs=3,
            max_tokens=20_000,
            reasoning_effort="medium",
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        ),
        safety={"HARM_CATEGORY_HARASSMENT": "BLOCK_ONLY_HIGH"},
    )
    theirs = await sdk_body(
        "hi",
        {
            "temperature": 0.5,
            "top_p": 0.9,
            "stop_sequences": ["END"],
            "seed": 7,
            "candidate_count": 2,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.25,
            "response_logprobs": True,
            "logprobs": 3,
            "max_output_tokens": 20_000,
            "thinking_config": {"thinking_budget": 8192, "include_thoughts": True},
            "response_mime_type": "application/json",
            "response_json_schema": SCHEMA,
            "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"}],
        },
    )
    assert ours == theirs


async def test_thinking_levels_equal_those_of_the_sdk() -> None:
    three = Target("gemini", "gemini-3-flash-preview", "")
    ours = await sent(chat_request(reasoning_effort="low"), target=three)
    config = {"thinking_config": {"thinking_level": "LOW", "include_thoughts": True}}
    assert ours == await sdk_body("hi", config, model=three.model)


async def test_tools_calls_and_results_equal_those_of_the_sdk() -> None:
    function = {"name": "tide", "description": "Tides", "parameters": SCHEMA}
    call = {"id": "a", "type": "function", "function": {"name": "tide", "arguments": '{"port":"Brest"}'}}
    call["extra_content"] = {"google": {"thought_signature": SIGNATURE}}
    ours = await sent(
        chat_request(
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": '{"high":"04:12"}'},
            tools=[{"type": "function", "function": function}],
            tool_choice={"type": "function", "function": {"name": "tide"}},
        )
    )
    part = types.Part(
        function_call=types.FunctionCall(id="a", name="tide", args={"port": "Brest"}),
        thought_signature=base64.b64decode(SIGNATURE),
    )
    response = types.FunctionResponse(id="a", name="tide", response={"high": "04:12"})
    theirs = await sdk_body(
        [
            types.UserContent("hi"),
            types.ModelContent(part),
            types.UserContent(types.Part(function_response=response)),
        ],
        {
            "tools": [
                types.Tool(
                    function_declarations=[
                        types.FunctionDeclaration(name="tide", description="Tides", parameters_json_schema=SCHEMA)
                    ]
                )
            ],
            "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["tide"]}},
            "automatic_function_calling": {"disable": True},
        },
    )
    assert ours == theirs


async def test_images_audio_and_hosted_files_equal_those_of_the_sdk() -> None:
    video = "https://www.youtube.com/watch?v=9hE5-98ZeCg"
    parts = [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "image_url", "image_url": {"url": video}},
    ]
    ours = await sent(chat_request({"role": "user", "content": parts}))
    theirs = await sdk_body(
        types.UserContent(
            [
                types.Part(text="Look."),
                types.Part.from_bytes(data=base64.b64decode(PNG), mime_type="image/png"),
                types.Part.from_bytes(data=b"RIFF", mime_type="audio/wav"),
                types.Part.from_uri(file_uri=video, mime_type="video/mp4"),
            ]
        )
    )
    assert ours == theirs


async def test_speech_request_equals_that_of_the_sdk() -> None:
    fields: dict[str, Any] = {"modalities": ["text", "audio"], "audio": {"voice": "Kore", "format": "pcm16"}}
    voice = {"voice_config": {"prebuilt_voice_config": {"voice_name": "Kore"}}}
    theirs = await sdk_body("hi", {"response_modalities": ["AUDIO"], "speech_config": voice})
    assert await sent(chat_request(**fields)) == theirs


async def test_image_request_equals_that_of_the_sdk() -> None:
    ours = msgspec.json.decode(image_body(picture(size="2048x2048"), safety=(), vertex=False))
    image = {"aspect_ratio": "1:1", "image_size": "2K"}
    assert ours == await sdk_body("a heron", {"response_modalities": ["TEXT", "IMAGE"], "image_config": image})


async def test_embeddings_request_and_answer_equal_those_of_the_sdk() -> None:
    request = decode_embedding_request(b'{"model":"m","input":["one","two"],"dimensions":8}')
    target = Target("gemini", "gemini-embedding-001", "m")
    async with FakeUpstream(gemini) as fake, provider(fake, task_type="CLUSTERING") as subject, sdk(fake) as models:
        ours = await subject.embed(request, target)
        config = types.EmbedContentConfig(output_dimensionality=8, task_type="CLUSTERING")
        theirs = await models.embed_content(model=target.model, contents=["one", "two"], config=config)
        mine, other = (seen.json for seen in fake.seen)
    for one in other["requests"]:
        one["content"].pop("role", None)  # the SDK writes one, which means nothing here
    assert mine == other and fake.seen[0].path == fake.seen[1].path
    for vector, embedding in zip(ours.vectors, theirs.embeddings, strict=True):
        length = math.hypot(*embedding.values)
        assert all(math.isclose(a, b / length) for a, b in zip(vector, embedding.values, strict=True))


def test_every_field_of_the_body_has_a_type_of_the_sdk() -> None:
    """Every key of a body with everything in it is known to the SDK's types, which refuse unknown ones."""
    request = chat_request(
        tools=[{"type": "function", "function": {"name": "tide", "parameters": SCHEMA}}],
        tool_choice="required",
        top_p=1,
    )
    body = msgspec.json.decode(chat_body(request, ModelFlags(), safety=(), voices={}))
    for known in (types.Content, types.Tool, types.ToolConfig, types.GenerationConfig):
        with pytest.raises(ValueError, match="not permitted"):
            known.model_validate({"unknown": 1})
    types.Content.model_validate(body["contents"][0])
    types.Tool.model_validate(body["tools"][0])
    types.ToolConfig.model_validate(body["toolConfig"])
    types.GenerationConfig.model_validate(body["generationConfig"])


# Vertex ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimensions", [None, 8])
async def test_vertex_gets_the_same_requests(dimensions: int | None) -> None:
    fields = {} if dimensions is None else {"dimensions": dimensions}
    request = decode_embedding_request(msgspec.json.encode({"model": "m", "input": ["one", "two"], **fields}))
    target = Target("vertex", "gemini-embedding-001", "m")
    async with FakeUpstream(gemini) as fake:
        options: dict[str, Any] = {"base_url": f"{fake.url}/v1", "api_key": None, "auth": "none"}
        client = genai.Client(
            vertexai=True,
            project="my-project",
            location="global",
            credentials=Credentials(token="ya29.a-token-for-tests"),  # type: ignore[no-untyped-call]
            http_options=types.HttpOptions(base_url=fake.url, api_version="v1"),
        ).aio
        async with provider(fake, **options, project="my-project", location="global") as subject:
            await subject.embed(request, target)
            await subject.chat(chat_request(), TARGET)
        config = types.EmbedContentConfig(output_dimensionality=dimensions) if dimensions else None
        await client.models.embed_content(model=target.model, contents=["one", "two"], config=config)
        await client.models.generate_content(model=MODEL, contents="hi")
        await client.aclose()
        embed, chat, their_embed, their_chat = fake.seen
    assert (embed.path, chat.path) == (their_embed.path, their_chat.path)
    assert chat.json == plain(their_chat.json)
    theirs = plain(their_embed.json)
    for one in theirs["requests"]:
        one["content"].pop("role", None)  # the SDK writes one, which means nothing here
    assert embed.json == theirs
