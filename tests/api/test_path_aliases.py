"""Other paths of the endpoints: Azure's, and those without /v1."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.api.path_aliases import form_with_model, plain_path
from gateway.api.routes import OPERATIONS
from gateway.testing import FakeUpstream
from gateway.uploads.form import Form
from tests.api.conftest import Client

HI: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
ROUTES = {"/v1/models", "/v1/models/x", "/v1/chat/completions"}


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/openai/deployments/m1/chat/completions", ("/v1/chat/completions", "m1")),
        ("/openai/deployments/org%2Fm:1/audio/speech/", ("/v1/audio/speech", "org/m:1")),
        ("/openai/deployments/org/m:1/embeddings", ("/v1/embeddings", "org/m:1")),
        ("/openai/deployments/m/images/edits", ("/v1/images/edits", "m")),
        ("/openai/deployments//embeddings", ("/v1/deployments//embeddings", "")),
        ("/openai/deployments/chat/completions", ("/v1/completions", "chat")),
        ("/openai/deployments/m1/nothing", ("/v1/deployments/m1/nothing", "")),
        ("/openai/v1/models", ("/v1/models", "")),
        ("/openai/models", ("/v1/models", "")),
        ("/models", ("/v1/models", "")),
        ("/models/x", ("/v1/models/x", "")),
        ("/nothing", ("/nothing", "")),
        ("/", ("/", "")),
    ],
)
def test_path_leads_to_an_endpoint_under_v1(path: str, plain: tuple[str, str]) -> None:
    assert plain_path(path, ROUTES.__contains__, OPERATIONS) == plain


@pytest.mark.holds("api.md#api-2")
@pytest.mark.parametrize("body", [{}, {"model": "secret"}])
async def test_model_of_the_path_counts(client: Client, upstream: FakeUpstream, body: dict[str, Any]) -> None:
    path = "/openai/deployments/m1/chat/completions?api-version=2024-10-21"
    async with client.request("POST", path, json={**HI, **body}) as response:
        assert (response.status, (await response.json())["model"]) == (200, "m1")
    assert upstream.seen[0].json["model"] == "upstream-m1"
    async with client.request("POST", path.replace("m1", "secret"), json={**HI, "model": "m1"}) as response:
        assert response.status == 403


def test_each_endpoint_of_openais_api_with_a_model_follows_a_deployment() -> None:
    assert OPERATIONS == (
        "/audio/transcriptions", "/images/generations", "/audio/translations", "/images/variations",
        "/chat/completions", "/images/edits", "/audio/speech", "/completions", "/moderations", "/embeddings",
        "/realtime", "/rerank",
    )  # fmt: skip


def test_model_of_the_path_replaces_that_of_a_form() -> None:
    form = Form(texts=[("model", "secret"), ("language", "en"), ("model", "other")])
    assert form_with_model(form, "m1").texts == [("language", "en"), ("model", "m1")]


async def test_invalid_body_under_a_deployment_gets_the_usual_error(client: Client) -> None:
    for body in (b"{", b"[]", b"\xff", b'{"messages": 1}'):
        headers = {**client.headers, "Content-Type": "application/json"}
        path = "/openai/deployments/m1/chat/completions"
        async with client.request("POST", path, data=body, headers=headers) as response:
            assert (response.status, (await response.json())["error"]["type"]) == (400, "invalid_request_error")


async def test_path_without_v1_is_the_same_endpoint(client: Client) -> None:
    async with client.request("POST", "/chat/completions", json={**HI, "model": "m1"}) as response:
        assert (response.status, (await response.json())["object"]) == (200, "chat.completion")
    for path in ("/models", "/openai/v1/models", "/openai/models?api-version=x", "/models/m1"):
        async with client.request("GET", path) as response:
            assert response.status == 200, path
        async with client.request("GET", path, headers={"X": "y"}) as response:
            assert response.status == 401, path
    for path in ("/", "/nothing"):
        async with client.request("GET", path, headers={"X": "y"}) as response:
            assert response.status == {"/": 200, "/nothing": 404}[path]


@pytest.mark.slow
async def test_azures_client_calls_a_deployment(client: Client, bearer: dict[str, str]) -> None:
    from openai import AzureOpenAI, OpenAI  # a quick run loads no SDK

    key = bearer["Authorization"].removeprefix("Bearer ")

    def call() -> tuple[str, str | None, list[str]]:
        with AzureOpenAI(azure_endpoint=client.base_url, api_key=key, api_version="2024-10-21", max_retries=0) as azure:
            answer = azure.chat.completions.create(model="m1", messages=HI["messages"])
            stream = azure.chat.completions.create(model="m1", messages=HI["messages"], stream=True)
            text = "".join(part.choices[0].delta.content or "" for part in stream if part.choices)
            names = [model.id for model in azure.models.list()]
        with OpenAI(base_url=f"{client.base_url}/openai/v1/", api_key=key, max_retries=0) as plain:
            assert plain.models.retrieve("m1").id == "m1"
        return answer.model, text, names

    model, text, names = await asyncio.to_thread(call)
    assert model == "m1" and text and "m1" in names
