"""A speech server with OpenAI's path behind the gateway: Piper, with a voice that says each text as a tone."""

from __future__ import annotations

import io
import subprocess
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.testing import RunningGateway, running_gateway
from tests.polling import until

from .asking import charges
from .hub_servers import program_of, speech_server
from .model_server import ModelServer

TEXT = "hello there, how are you"


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """The interpreter beside the server's program writes the voice."""
    python = Path(program_of("SERVERS_SPEECH")).with_name("python")
    folder = tmp_path_factory.mktemp("speech")
    writer = Path(__file__).with_name("write_tone_voice.py")
    subprocess.run([python, "-P", writer, folder / "voices"], check=True, capture_output=True)
    with speech_server(folder) as server:
        yield server


@pytest.fixture(scope="module")
def served(speech: ModelServer) -> Iterator[RunningGateway]:
    """The gateway before it."""
    config = f"""
[providers.speech]
plugin = "openai"
base_url = "{speech.url}/v1"
[groups.default]
[models.speech]
provider = "speech"
model = "tts-1"
endpoints = ["speech"]
price = {{ per_second_out = "0.0001" }}
"""
    with running_gateway(config) as gateway:
        yield gateway


async def speak(url: str, model: str, form: str, **headers: str) -> tuple[int, Any, bytes]:
    """Status, headers and body."""
    body = {"model": model, "voice": "alloy", "input": TEXT, "response_format": form}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{url}/audio/speech", json=body) as response,
    ):
        return response.status, response.headers, await response.read()


@pytest.mark.parametrize("form", ["wav", "pcm"])
async def test_speech_is_that_of_a_direct_call(served: RunningGateway, speech: ModelServer, form: str) -> None:
    _, _, theirs = await speak(f"{speech.url}/v1", "tts-1", form)
    status, _, ours = await speak(served.base_url, "speech", form, Authorization=f"Bearer {served.api_key}")
    assert status == 200
    assert ours == theirs


async def test_seconds_of_a_wav_are_charged(served: RunningGateway) -> None:
    before = len(charges(served))
    _, headers, sound = await speak(served.base_url, "speech", "wav", Authorization=f"Bearer {served.api_key}")
    assert headers["Content-Type"] == "audio/wav"
    with wave.open(io.BytesIO(sound)) as file:
        seconds = file.getnframes() / file.getframerate()
    await until(lambda: len(charges(served)) > before)
    assert charges(served)[-1]["usage"]["audio_seconds_out"] == pytest.approx(seconds, abs=0.001)
