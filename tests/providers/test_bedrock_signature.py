"""Bedrock's credentials: signatures that botocore computes as well, its chain, and secrets that stay unseen."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.session
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import Secret, Upstream
from gateway.errors import UpstreamAuthError
from gateway.testing import FakeUpstream
from gateway_providers.bedrock import LARGE_BODY, BedrockProvider
from gateway_providers.bedrock.credentials import ChainedCredentials
from gateway_providers.bedrock.signature import Credentials, Signer, hash_of
from tests.providers.converse_dialect import KEY_ID, REGION, SECRET, TOKEN, asking, converse, keys, provider, target

MOMENT = datetime.datetime(2026, 11, 21, 10, 40, 7, tzinfo=datetime.UTC)
PUBLIC = "https://bedrock-runtime.eu-west-1.amazonaws.com"
MODELS = [
    "anthropic.claude-3-haiku-20240307-v1:0",
    "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2c3",
    "meta.llama3-3-70b-instruct-v1:0",
    "~odd name/with (everything)=&?#%25é",
]


def signed_by_botocore(url: str, body: bytes, credentials: Credentials, *, region: str = REGION) -> dict[str, str]:
    """The headers of the same request as botocore signs it at MOMENT."""
    request = botocore.awsrequest.AWSRequest("POST", url, headers={"content-type": "application/json"}, data=body)
    theirs = botocore.credentials.Credentials(
        credentials.access_key_id, credentials.secret_access_key, credentials.session_token or None
    )
    with mock.patch.object(botocore.auth, "get_current_datetime", lambda: MOMENT):
        botocore.auth.SigV4Auth(theirs, "bedrock", region).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def signed(url: str, body: bytes, credentials: Credentials, *, region: str = REGION) -> dict[str, str]:
    return Signer(region).headers(credentials, url, body_hash=hash_of(body), at=MOMENT.timestamp())


@pytest.mark.parametrize("token", ["", TOKEN])
@pytest.mark.parametrize("operation", ["converse", "converse-stream"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("base", [PUBLIC, "http://127.0.0.1:8080", "https://vpce-1.example:443/prefix"])
def test_signature_equals_that_of_botocore(base: str, model: str, operation: str, token: str) -> None:
    url = f"{base}/model/{quote(model, safe='')}/{operation}"
    credentials = Credentials(access_key_id=KEY_ID, secret_access_key=SECRET, session_token=token)
    for body in (b'{"messages":[]}', b"", "Tür".encode() * 999):
        ours, theirs = signed(url, body, credentials), signed_by_botocore(url, body, credentials)
        assert ours["authorization"] == theirs["authorization"]
        assert {name: ours[name] for name in theirs} == theirs
        assert ours.keys() - theirs.keys() == {"host"}  # botocore leaves writing it to its HTTP client


# No model can be called `.` or `..`, which name the folder around them.
ids = st.text(min_size=1, max_size=40).filter(lambda name: name not in {".", ".."})


@given(ids, st.binary(max_size=60), st.sampled_from(["us-east-1", "ap-southeast-2"]))
def test_signature_equals_that_of_botocore_for_any_name_and_body(model: str, body: bytes, region: str) -> None:
    credentials = Credentials(access_key_id=KEY_ID, secret_access_key=SECRET)
    url = f"https://bedrock-runtime.{region}.amazonaws.com/model/{quote(model, safe='')}/converse"
    theirs = signed_by_botocore(url, body, credentials, region=region)
    assert signed(url, body, credentials, region=region)["authorization"] == theirs["authorization"]


def test_derived_key_is_reused_only_for_the_same_day_and_secret() -> None:
    signer, url = Signer(REGION), f"{PUBLIC}/model/m/converse"
    other = Credentials(access_key_id=KEY_ID, secret_access_key="another")
    same = Credentials(access_key_id=KEY_ID, secret_access_key=SECRET)
    for credentials, day in ((same, 0), (same, 0), (other, 0), (same, 0), (same, 1), (same, 0)):
        at = MOMENT.timestamp() + 86_400 * day
        used = signer.headers(credentials, url, body_hash=hash_of(b""), at=at)
        assert used == Signer(REGION).headers(credentials, url, body_hash=hash_of(b""), at=at)


# What is sent --------------------------------------------------------------------------------------------------------


async def raw_request(model: str, **options: Any) -> tuple[str, dict[str, str], bytes]:
    """Target, headers and body of one chat as they arrive: an HTTP framework would decode the path."""
    arrived: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(
            next(line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-le"))
        )
        arrived.set_result((head, await reader.readexactly(length)))
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    link = Upstream()
    base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    subject = BedrockProvider(BedrockProvider.Options(region=REGION, base_url=base_url, **(options or keys())), link)
    await subject.start()
    with pytest.raises(Exception, match="provider"):
        await subject.chat(asking(), target(model))
    await link.close()
    server.close()
    head, body = await arrived
    line, *rest = head.decode().split("\r\n")
    pairs = (header.split(": ", 1) for header in rest if header)
    return line.split(" ")[1], {name.lower(): value for name, value in pairs}, body


@pytest.mark.parametrize("model", MODELS)
async def test_body_arrives_as_it_was_signed(model: str) -> None:
    path, headers, body = await raw_request(model, **keys(token=True))
    assert path == f"/model/{quote(model, safe='')}/converse"
    assert headers["content-type"] == "application/json" and headers["x-amz-security-token"] == TOKEN
    request = botocore.awsrequest.AWSRequest(
        "POST", f"http://{headers['host']}{path}", headers={"content-type": "application/json"}, data=body
    )
    moment = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    assert abs(moment.timestamp() - time.time()) < 60
    with mock.patch.object(botocore.auth, "get_current_datetime", lambda: moment):
        theirs = botocore.credentials.Credentials(KEY_ID, SECRET, TOKEN)
        botocore.auth.SigV4Auth(theirs, "bedrock", REGION).add_auth(request)
    assert headers["authorization"] == request.headers["Authorization"]


async def test_large_body_is_hashed_in_a_thread_and_signed_equally() -> None:
    request = asking(messages=[{"role": "user", "content": "x" * LARGE_BODY}])
    threads = []

    def watched(body: bytes) -> str:
        threads.append(threading.current_thread())
        return hash_of(body)

    with mock.patch("gateway_providers.bedrock.hash_of", watched):
        async with FakeUpstream(converse) as fake, provider(fake) as subject:
            await subject.chat(request, target("m"))
            await subject.chat(asking(), target("m"))
    assert [thread is threading.main_thread() for thread in threads] == [False, True]


async def test_api_key_is_sent_as_bearer_and_nothing_is_signed() -> None:
    _, headers, _ = await raw_request("m", api_key=Secret("literal", "bedrock-api-key-TESTS"))
    assert headers["authorization"] == "Bearer bedrock-api-key-TESTS"
    assert "x-amz-date" not in headers and headers["content-type"] == "application/json"


def test_region_decides_the_endpoint() -> None:
    def url(**options: Any) -> str:
        return BedrockProvider(BedrockProvider.Options(**options), Upstream())._base_url

    assert url(region="eu-west-1") == PUBLIC
    assert url(region="us-gov-west-1") == "https://bedrock-runtime.us-gov-west-1.amazonaws.com"
    assert url(region="cn-north-1") == "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"
    assert url(region="eu-west-1", base_url="https://vpce.example/x/") == "https://vpce.example/x"


@pytest.mark.parametrize(
    "options",
    [
        {"region": ""},
        {"region": "eu-west-1.evil.example/"},
        {"base_url": "ftp://host"},
        {"base_url": "https://user:hunter2@host"},
        {"access_key_id": Secret("literal", "a")},
        {"secret_access_key": Secret("literal", "a")},
        {"session_token": Secret("literal", "a")},
        {"api_key": Secret("literal", "a"), **keys()},
        {"api_key": Secret("literal", "a"), "profile": "p"},
        {"profile": "p", **keys()},
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"region|base_url|access_key_id|session_token|api_key|profile") as caught:
        BedrockProvider(BedrockProvider.Options(**{"region": REGION, **options}), Upstream())
    assert "hunter2" not in str(caught.value)


# AWS's chain ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any AWS credentials; returns a folder for some."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path


async def test_credential_chain_finds_keys_in_the_environment(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    found = await (await ChainedCredentials.find()).current()
    assert found == Credentials(access_key_id=KEY_ID, secret_access_key=SECRET, session_token=TOKEN)


async def test_credential_chain_finds_the_named_profile_of_the_shared_file(bare: Path) -> None:
    (bare / "credentials").write_text(
        f"[default]\naws_access_key_id=other\naws_secret_access_key=other\n"
        f"[work]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n"
    )
    async with FakeUpstream(converse) as fake, provider(fake, profile="work") as subject:
        await subject.chat(asking(), target("m"))
    assert f"Credential={KEY_ID}/" in fake.seen[0].headers["authorization"]


async def test_empty_credential_chain_prevents_the_start(bare: Path) -> None:
    subject = BedrockProvider(BedrockProvider.Options(region=REGION), Upstream())
    with pytest.raises(ValueError, match="found no credentials"):
        await subject.start()


async def test_credential_chain_without_botocore_says_what_to_install(bare: Path) -> None:
    subject = BedrockProvider(BedrockProvider.Options(region=REGION), Upstream())
    without = mock.patch.dict("sys.modules", {"botocore.session": None})
    with without, pytest.raises(ValueError, match=r"model-gateway\[bedrock\]"):
        await subject.start()


class Expiring:
    """botocore's own renewal, around keys that we hand out."""

    def __init__(self, *, seconds: float) -> None:
        self.threads: list[threading.Thread] = []
        self.seconds = seconds
        self.fails = False
        self.found = botocore.credentials.RefreshableCredentials.create_from_metadata(
            self.fresh(), refresh_using=self.renew, method="test"
        )

    def fresh(self) -> dict[str, str]:
        expiry = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.seconds)
        count = len(self.threads)
        keys = {"access_key": f"{KEY_ID}-{count}", "secret_key": SECRET, "token": TOKEN}
        return {**keys, "expiry_time": expiry.isoformat()}

    def renew(self) -> dict[str, str]:
        self.threads.append(threading.current_thread())
        if self.fails:
            raise RuntimeError(f"metadata service said {SECRET}")
        return self.fresh()


async def test_valid_keys_are_not_renewed() -> None:
    keys = Expiring(seconds=3600)
    source = ChainedCredentials(keys.found)
    first = await source.current()
    assert await source.current() is first and keys.threads == []


async def test_expiring_keys_are_renewed_once_and_in_a_thread() -> None:
    expiring = Expiring(seconds=60)
    source = ChainedCredentials(expiring.found)
    expiring.seconds = 3600
    found = await asyncio.gather(*(source.current() for _ in range(20)))
    assert {one.access_key_id for one in found} == {f"{KEY_ID}-1"}
    assert len(expiring.threads) == 1 and expiring.threads[0] is not threading.main_thread()


async def test_all_waiting_calls_share_one_failed_renewal() -> None:
    expiring = Expiring(seconds=3600)
    source = ChainedCredentials(expiring.found)
    expiring.fails = True
    expiring.found._expiry_time = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
    with mock.patch.object(logging.getLogger("botocore.credentials"), "disabled", True):
        found = await asyncio.gather(*(source.current() for _ in range(20)), return_exceptions=True)
    assert all(isinstance(one, UpstreamAuthError) for one in found) and len(expiring.threads) == 1


async def test_failed_renewal_leaves_keys_in_use_until_they_have_expired(caplog: pytest.LogCaptureFixture) -> None:
    expiring = Expiring(seconds=3600)
    source = ChainedCredentials(expiring.found)
    first = await source.current()
    expiring.fails = True
    expiring.found._expiry_time = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=300)
    source._next_renewal = 0.0  # half a minute has passed
    with caplog.at_level(logging.CRITICAL, logger="botocore"):
        assert [await source.current() for _ in range(5)] == [first] * 5
        assert len(expiring.threads) == 1  # and not once for every call
        expiring.found._expiry_time = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
        with pytest.raises(UpstreamAuthError) as caught:
            await source.current()
    with pytest.raises(UpstreamAuthError):
        await source.current()
    assert caught.value.retryable and SECRET not in f"{caught.value} {caught.value.detail} {caught.value.__cause__}"
    expiring.fails = False
    assert (await source.current()).access_key_id != first.access_key_id


# Nothing shows -----------------------------------------------------------------------------------------------------


async def test_no_repr_and_no_encoding_shows_a_key() -> None:
    credentials = Credentials(access_key_id=KEY_ID, secret_access_key=SECRET, session_token=TOKEN)
    subject = BedrockProvider(BedrockProvider.Options(region=REGION, **keys(token=True)), Upstream())
    await subject.start()
    chained = ChainedCredentials(Expiring(seconds=3600).found)
    await chained.current()
    shown = [credentials, [credentials], subject, subject.options, subject._source, subject._signer, chained]
    text = " ".join(f"{one!r} {one!s}" for one in shown) + json.dumps(str(vars(subject)))
    assert not any(secret in text for secret in (KEY_ID, SECRET, TOKEN))
