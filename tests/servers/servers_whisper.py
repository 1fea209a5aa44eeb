"""faster-whisper behind the gateway: transcriptions and translations in each form, of which the server has two."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from gateway.testing import RunningGateway, running_gateway

from .hub_servers import program_of, whisper_server
from .model_server import ModelServer

pytestmark = pytest.mark.no_standard  # the server's own answers are read, too

SOUND = Path(__file__).parents[1] / "sounds" / "tone.flac"


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """A Whisper of random weights, which the interpreter beside the server's program writes."""
    python = Path(program_of("SERVERS_WHISPER")).with_name("python")
    folder = tmp_path_factory.mktemp("whisper")
    writer = Path(__file__).with_name("write_tiny_whisper.py")
    subprocess.run([python, "-P", writer, folder], check=True, capture_output=True)
    with whisper_server(folder) as server:
        yield server


@pytest.fixture(scope="module")
def served(whisper: ModelServer) -> Iterator[RunningGateway]:
    """The gateway before it."""
    config = f"""
[providers.whisper]
plugin = "openai"
base_url = "{whisper.url}/v1"
[groups.default]
[models.whisper]
provider = "whisper"
endpoints = ["transcription"]
price = {{ per_second_in = "0.0001" }}
"""
    with running_gateway(config) as gateway:
        yield gateway


async def transcribe(url: str, form: str, **headers: str) -> tuple[int, str]:
    """Status and text."""
    data = aiohttp.FormData({"model": "whisper", "language": "en", "temperature": "0", "response_format": form})
    data.add_field("file", SOUND.read_bytes(), filename="tone.flac", content_type="audio/flac")
    async with aiohttp.ClientSession() as session, session.post(url, data=data, headers=headers) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("form", ["json", "verbose_json", "text", "srt"])
async def test_transcription_is_that_of_a_direct_call(served: RunningGateway, whisper: ModelServer, form: str) -> None:
    _, direct = await transcribe(f"{whisper.url}/v1/audio/transcriptions", "verbose_json")
    theirs = json.loads(direct)
    url = f"{served.base_url}/audio/transcriptions"
    status, text = await transcribe(url, form, Authorization=f"Bearer {served.api_key}")
    assert status == 200, text
    if form == "srt":
        lines = text.splitlines()
        assert lines[0] == "1" and lines[1].startswith("00:00:00,000 --> 00:00:0")
        assert theirs["segments"][0]["text"].strip() in lines[2]
    elif form == "text":
        assert text.strip() == theirs["text"].strip()
    else:
        ours = json.loads(text)
        assert ours["text"] == theirs["text"]
        assert ours["usage"]["seconds"] == pytest.approx(theirs["duration"], abs=0.1)


@pytest.mark.parametrize("form", ["json", "verbose_json", "text"])
async def test_translation_is_that_of_a_direct_call(served: RunningGateway, whisper: ModelServer, form: str) -> None:
    _, direct = await transcribe(f"{whisper.url}/v1/audio/translations", "verbose_json")
    theirs = json.loads(direct)
    url = f"{served.base_url}/audio/translations"
    status, text = await transcribe(url, form, Authorization=f"Bearer {served.api_key}")
    assert status == 200, text
    if form == "text":
        assert text.strip() == theirs["text"].strip()
        return
    ours = json.loads(text)
    assert ours["text"] == theirs["text"]
    if form == "verbose_json":
        assert (ours["task"], ours["language"]) == ("translate", "english")
        assert ours["duration"] == pytest.approx(theirs["duration"], abs=0.1)
