"""A gateway that serves files and batches, and the runner of batches in the same process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tornado.ioloop import IOLoop

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.runtime.batches.runner import Runner
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.api.conftest import Client
from tests.polling import until

CHAT = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")


def configuration(folder: Path, upstream: FakeUpstream, **batches: Any) -> dict[str, Any]:
    """Models of one upstream: m1 at 1 and 2 for a million tokens, half of it half of that in a batch."""
    model = {
        "provider": "up",
        "model": "upstream-m1",
        "price": {"input": 1, "output": 2},
        "retries": 0,
        "max_output_tokens": 100,
    }
    return {
        "store": {"data_dir": str(folder)},
        "providers": {
            "up": {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
        },
        "groups": {"default": {}, "inner": {}, "fifth": {"price_factor": Decimal("0.2")}},
        "models": {
            "m1": {**model, "endpoints": ["chat", "embeddings"]},
            "half": {**model, "batch_factor": Decimal("0.5"), "groups": ["default", "fifth"]},
            "secret": {**model, "groups": ["inner"]},
        },
        "batches": {"enabled": True, **batches},
        "files": {"max_file": 1_000_000, "max_account": 3_000_000, "max_account_files": 5},
    }


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """The models, with files and batches."""
    return parse(configuration(tmp_path, upstream), demo=True)


@pytest.fixture
def runner(io_loop: IOLoop, gateway: Gateway) -> Iterator[Runner]:
    """Runs batches while the test does."""
    stop = asyncio.Event()
    runner = Runner(gateway, stop)
    task = io_loop.asyncio_loop.create_task(runner.run())  # type: ignore[attr-defined]
    yield runner
    stop.set()
    io_loop.run_sync(lambda: task)


def line(number: int, *, model: str = "m1", url: str = CHAT, **changes: Any) -> dict[str, Any]:
    """One request of a batch."""
    body = {"model": model, "messages": [{"role": "user", "content": f"Hi {number}"}]}
    return {"custom_id": f"line-{number}", "method": "POST", "url": url, "body": body, **changes}


def jsonl(*lines: Any) -> bytes:
    """The lines as a file."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


class Api:
    """Files and batches, as a client asks for them."""

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self.headers = {"Authorization": f"Bearer {key}"}

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON of one request; the bytes of an answer that is no JSON."""
        async with self._client.request(method, path, headers=self.headers, **options) as response:
            content = await response.read()
            is_json = response.headers.get("Content-Type") == "application/json"
            return response.status, json.loads(content) if is_json else content

    async def upload(self, content: bytes, *, name: str = "in.jsonl", **fields: str) -> tuple[int, Any]:
        """Upload a file."""
        form = aiohttp.FormData()
        for field, value in {"purpose": "batch", **fields}.items():
            form.add_field(field, value)
        form.add_field("file", content, filename=name, content_type="application/jsonl")
        return await self.ask("POST", "/v1/files", data=form)

    async def create(self, content: bytes, *, endpoint: str = CHAT, **fields: Any) -> Any:
        """Upload an input and make a batch of it."""
        status, file = await self.upload(content)
        assert status == 200, file
        asked = {"input_file_id": file["id"], "endpoint": endpoint, "completion_window": "24h", **fields}
        status, batch = await self.ask("POST", "/v1/batches", json=asked)
        assert status == 200, batch
        return batch

    async def ended(self, batch: Any) -> Any:
        """The batch once it has ended."""

        async def look() -> Any:
            _, found = await self.ask("GET", f"/v1/batches/{batch['id']}")
            return found if found["status"] in ENDED else None

        return await until(look)

    async def lines(self, file_id: str | None) -> list[Any]:
        """The lines of a file of results."""
        if file_id is None:
            return []
        status, content = await self.ask("GET", f"/v1/files/{file_id}/content")
        assert status == 200
        return [json.loads(one) for one in content.splitlines()]


@pytest.fixture
def api(client: Client, api_key: Any) -> Api:
    """The API with the key of the account "acme"."""
    return Api(client, api_key.text)
