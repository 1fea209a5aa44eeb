"""The official Python SDK on files and batches, unmodified."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from gateway.testing import RunningGateway
from tests.polling import until_blocking

from .scripted import ScriptedUpstream

pytestmark = pytest.mark.clients


@pytest.fixture
def client(served: RunningGateway, scripted: ScriptedUpstream) -> Iterator[OpenAI]:
    """A client as the README makes it."""
    with OpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        yield client


def lines(count: int, *, model: str = "scripted") -> bytes:
    """The input of a batch."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    url = "/v1/chat/completions"
    texts = [json.dumps({"custom_id": f"c{n}", "method": "POST", "url": url, "body": body}) for n in range(count)]
    return "\n".join(texts).encode()


def ended(client: OpenAI, batch: Batch) -> Batch:
    """The batch once it has ended."""

    def look() -> Batch | None:
        found = client.batches.retrieve(batch.id)
        return found if found.status in ("completed", "failed", "cancelled", "expired") else None

    return until_blocking(look)


def test_files_are_made_listed_read_and_deleted(client: OpenAI) -> None:
    made = client.files.create(
        file=("night.jsonl", b"{}\n"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 7200}
    )
    assert (made.object, made.bytes, made.filename, made.purpose, made.status) == (
        "file",
        3,
        "night.jsonl",
        "batch",
        "processed",
    )
    assert made.expires_at == made.created_at + 7200
    assert client.files.retrieve(made.id) == made
    assert client.files.content(made.id).read() == b"{}\n"
    others = [client.files.create(file=("x.jsonl", b"{}"), purpose="batch").id for _ in range(2)]
    found = {file.id for file in client.files.list(limit=1, order="asc", purpose="batch")}  # pages
    assert {made.id, *others} <= found
    for file_id in (made.id, *others):
        assert client.files.delete(file_id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.files.create(file=("x", b"x"), purpose="assistants")
    assert caught.value.param == "purpose"


def test_batch_is_run_and_its_results_are_read(client: OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", lines(5)), purpose="batch")
    made = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"night": "1"},
        extra_body={"max_cost": "1.5"},
    )
    assert (made.object, made.status, made.metadata) == ("batch", "validating", {"night": "1"})
    done = ended(client, made)
    assert done.status == "completed"
    assert done.request_counts is not None
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (5, 5, 0)
    assert done.output_file_id is not None
    results = [json.loads(line) for line in client.files.content(done.output_file_id).text.splitlines()]
    assert sorted(one["custom_id"] for one in results) == [f"c{n}" for n in range(5)]
    assert {one["response"]["body"]["object"] for one in results} == {"chat.completion"}
    assert made.id in [batch.id for batch in client.batches.list(limit=2)]


def test_batch_is_cancelled_and_a_wrong_one_says_why(client: OpenAI) -> None:
    wrong = client.files.create(file=("in.jsonl", lines(1) + b"\nnonsense"), purpose="batch")
    made = client.batches.create(input_file_id=wrong.id, endpoint="/v1/chat/completions", completion_window="24h")
    failed = ended(client, made)
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert [(error.code, error.line) for error in failed.errors.data] == [("invalid_json_line", 2)]
    good = client.files.create(file=("in.jsonl", lines(3)), purpose="batch")
    made = client.batches.create(input_file_id=good.id, endpoint="/v1/chat/completions", completion_window="24h")
    assert client.batches.cancel(made.id).status in ("cancelling", "completed")
    assert ended(client, made).status in ("cancelled", "completed")
