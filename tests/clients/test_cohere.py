"""Cohere's own SDK for Python, unmodified, sync and async, on rerankings."""

from __future__ import annotations

from collections.abc import Iterator

import cohere
import pytest
from cohere.core.api_error import ApiError
from cohere.v2.types import V2RerankResponse

from gateway.testing import RunningGateway

from .scripted import ScriptedUpstream

pytestmark = pytest.mark.clients

QUERY = "grey herons"
DOCUMENTS = ["the price of tin", "five grey herons", "a grey morning"]


def address(served: RunningGateway) -> str:
    return served.base_url.removesuffix("/v1")


@pytest.fixture
def client(served: RunningGateway) -> Iterator[cohere.ClientV2]:
    """A client as Cohere's documentation makes it, with another address."""
    with cohere.ClientV2(api_key=served.api_key, base_url=address(served), max_retries=0) as client:
        yield client


def assert_ranked(answer: V2RerankResponse) -> None:
    """The two best documents, and what they cost."""
    assert [(one.index, one.relevance_score) for one in answer.results] == [(1, 1.0), (2, 0.5)]
    assert answer.id and answer.id.startswith("rerank-")
    assert answer.meta and answer.meta.billed_units
    assert answer.meta.billed_units.search_units == 1


def test_documents_are_ranked(client: cohere.ClientV2, scripted: ScriptedUpstream) -> None:
    assert_ranked(client.rerank(model="ranks", query=QUERY, documents=DOCUMENTS, top_n=2))
    assert scripted.seen[0].path == "/v1/rerank"


def test_optional_fields_are_accepted(client: cohere.ClientV2) -> None:
    answer = client.rerank(
        model="ranks", query=QUERY, documents=DOCUMENTS, top_n=2, max_tokens_per_doc=4000, priority=1
    )
    assert_ranked(answer)


def test_client_of_version_1_gets_the_texts(served: RunningGateway) -> None:
    with cohere.Client(api_key=served.api_key, base_url=address(served), max_retries=0) as client:
        documents = [{"text": text} for text in DOCUMENTS]
        answer = client.rerank(model="ranks", query=QUERY, documents=documents, top_n=1, return_documents=True)
    [best] = answer.results
    assert (best.index, best.document and best.document.text) == (1, "five grey herons")


async def test_async_client_ranks_documents(served: RunningGateway) -> None:
    async with cohere.AsyncClientV2(api_key=served.api_key, base_url=address(served), max_retries=0) as client:
        assert_ranked(await client.rerank(model="ranks", query=QUERY, documents=DOCUMENTS, top_n=2))


@pytest.mark.parametrize(("model", "documents", "status"), [("ranks", [], 400), ("nowhere", ["a"], 403)])
def test_refusal_raises(client: cohere.ClientV2, model: str, documents: list[str], status: int) -> None:
    with pytest.raises(ApiError) as caught:
        client.rerank(model=model, query=QUERY, documents=documents)
    assert caught.value.status_code == status
    assert caught.value.body["error"]["message"]
