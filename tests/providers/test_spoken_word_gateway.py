"""An unmodified OpenAI client, the gateway, and vendors of speech behind it: what callers hear, read and pay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from tornado.ioloop import IOLoop

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.testing import FakeUpstream, Seen
from gateway.testing.transcription_cases import RecordedSilence
from tests.polling import until
from tests.providers.spoken_word import MP3
from tests.providers.test_deepgram import deepgram
from tests.providers.test_elevenlabs import VOICE, eleven

pytestmark = pytest.mark.slow  # an SDK takes a second to import

VENDORS = ("elevenlabs", "deepgram")


def either(seen: Seen) -> Any:
    return eleven(seen) if "xi-api-key" in seen.headers else deepgram(seen)


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """Both vendors' server."""
    server = FakeUpstream(either)
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A voice and an ear at each vendor: 10 for a million letters, 0.001 for a second."""
    options: dict[str, Any] = {"elevenlabs": {"voice_map": {"alloy": VOICE}}, "deepgram": {}}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                name: {"plugin": name, "base_url": upstream.url, "api_key": "canary", **options[name]}
                for name in VENDORS
            },
            "groups": {"default": {}},
            "models": {
                f"{name}-{part}": {"provider": name, "endpoints": [endpoint], "price": price}
                for name in VENDORS
                for part, endpoint, price in (
                    ("voice", "speech", {"per_character": 10}),
                    ("ear", "transcription", {"per_second_in": 1}),
                )
            },
        },
        demo=True,
    )


@asynccontextmanager
async def caller(base_url: str, key: CreatedKey) -> AsyncIterator[openai.AsyncOpenAI]:
    address = f"{base_url.replace('localhost', '127.0.0.1')}/v1"
    async with openai.AsyncOpenAI(base_url=address, api_key=key.text, max_retries=0) as client:
        yield client


async def until_charged(accounts: Accounts, key: CreatedKey, before: int, cost: int) -> None:
    async def is_charged() -> bool:
        return before - (await accounts.show(key.account)).balance == cost

    await until(is_charged)


@pytest.mark.parametrize("vendor", VENDORS)
async def test_speech_is_synthesized_and_charged_by_the_character(
    vendor: str, http_server: HTTPServer, base_url: str, api_key: CreatedKey, accounts: Accounts
) -> None:
    before = (await accounts.show(api_key.account)).balance
    async with caller(base_url, api_key) as client:
        text = "Good morning."
        async with client.audio.speech.with_streaming_response.create(
            model=f"{vendor}-voice", voice="alloy", input=text
        ) as answer:
            sound = await answer.read()
            assert answer.headers["content-type"] == "audio/mpeg"
        assert sound == MP3 * len(text)
    await until_charged(accounts, api_key, before, len(text) * 10 * NANO // 1_000_000)


@pytest.mark.parametrize("vendor", VENDORS)
async def test_audio_is_transcribed_and_charged_by_the_second(
    vendor: str, http_server: HTTPServer, base_url: str, api_key: CreatedKey, accounts: Accounts
) -> None:
    before = (await accounts.show(api_key.account)).balance
    sound = ("morning.wav", RecordedSilence(2.75).data, "audio/wav")
    async with caller(base_url, api_key) as client:
        answer = await client.audio.transcriptions.create(
            model=f"{vendor}-ear",
            file=sound,
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
        )
        assert answer.words and [said.word for said in answer.words][-1] == "Good." and answer.duration == 2.75
        assert answer.segments and answer.segments[0].text == "The boats are in."
        subtitles: Any = await client.audio.transcriptions.create(
            model=f"{vendor}-ear", file=sound, response_format="srt"
        )
        assert subtitles.startswith("1\n00:00:00,100 --> 00:00:01,000\nThe boats are in.\n")
    await until_charged(accounts, api_key, before, 2 * 2_750_000_000)


@pytest.mark.parametrize(
    ("model", "fields", "code", "param"),
    [
        ("elevenlabs-voice", {"voice": "nova"}, "invalid_value", "voice"),
        ("elevenlabs-voice", {"response_format": "flac"}, "unsupported_value", "response_format"),
        ("elevenlabs-voice", {"speed": 2.0}, "decimal_above_max_value", "speed"),
    ],
)
async def test_unsupported_request_to_a_vendor_is_refused_and_costs_nothing(
    model: str,
    fields: dict[str, Any],
    code: str,
    param: str,
    http_server: HTTPServer,
    base_url: str,
    api_key: CreatedKey,
    accounts: Accounts,
    upstream: FakeUpstream,
) -> None:
    before = (await accounts.show(api_key.account)).balance
    async with caller(base_url, api_key) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.audio.speech.create(**{"model": model, "voice": "alloy", "input": "Hi.", **fields})
    assert (caught.value.code, caught.value.param) == (code, param) and not upstream.seen
    await until_charged(accounts, api_key, before, 0)
