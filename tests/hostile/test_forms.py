"""Mangled forms through the whole gateway: an answer or a 400 in OpenAI's shape, and nothing left over."""

from __future__ import annotations

import json
import random
from pathlib import Path

import aiohttp
import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.config.loader import demo_settings
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.runtime.gateway import Gateway
from gateway.testing.transcription_cases import RecordedSilence

PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")
ROUNDS = 400
SPLICES = (
    b"--edge", b"--edge--", b"\r\n--edge\r\n", b"\r\n\r\n", b"\0", b"\xff\xfe", b"name=", b'filename="a.wav"', b'"',
    b"Content-Disposition: form-data; name=", b"Content-Transfer-Encoding: base64\r\n", b"[]", b"{",
    b"stream", b"true", b";",
)  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The demo's models."""
    return demo_settings(tmp_path)


def form() -> bytes:
    """A sound form, for the others to break."""
    fields = {
        "model": "fake-transcription", "response_format": "verbose_json", "temperature": "0.5", "languages[]": "de",
        "chunking_strategy[type]": "server_vad", "known_speaker_names": "[]",
    }  # fmt: skip
    body = b"".join(
        f'--edge\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    )
    head = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    return body + head + RecordedSilence(0.05).data + b"\r\n--edge--\r\n"


def mangled(chance: random.Random) -> bytes:
    """The form with up to six wounds, most of them where its words are."""
    body = bytearray(form())
    for _ in range(chance.randrange(7)):
        at = (
            chance.randrange(min(len(body), 900)) if chance.random() < 0.9 and body else chance.randrange(len(body) + 1)
        )
        wound = chance.randrange(4)
        if wound == 0:
            body[at:at] = chance.choice(SPLICES)
        elif wound == 1:
            del body[at : at + chance.randrange(1, 60)]
        elif wound == 2:
            body[at : at + 1] = bytes((chance.randrange(256),))
        else:
            body[at:at] = body[at : at + chance.randrange(200)]
    return bytes(body[: chance.randrange(len(body) + 1)] if chance.random() < 0.1 else body)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", range(3))
async def test_malformed_forms_are_answered_or_refused(
    http_server: HTTPServer,
    base_url: str,
    gateway: Gateway,
    api_key: CreatedKey,
    accounts: Accounts,
    tmp_path: Path,
    seed: int,
    path: str,
) -> None:
    chance = random.Random(seed)
    headers = {"Authorization": f"Bearer {api_key.text}"}
    statuses: dict[int, int] = {}
    async with aiohttp.ClientSession() as session:
        for _ in range(ROUNDS // 3):
            body = mangled(chance)
            content_type = chance.choice(
                ["multipart/form-data; boundary=edge"] * 9 + ["multipart/form-data; boundary=e"]
            )
            url = base_url.replace("localhost", "127.0.0.1") + path
            async with session.post(url, data=body, headers={**headers, "Content-Type": content_type}) as response:
                document = json.loads(await response.read()) if response.content_type == "application/json" else {}
                statuses[response.status] = statuses.get(response.status, 0) + 1
                if response.status == 200:
                    continue
                assert response.status in (400, 403), (response.status, body)
                assert document["error"].keys() == {"message", "type", "param", "code"}, body
    assert statuses[400] > 20, "the forms were not broken"
    assert statuses.get(200), "no form was whole"
    assert (await accounts.show("acme")).held == 0
    assert (await gateway.ledger.audit()).mismatches == []
    assert not list(tmp_path.glob("tmp/*"))
