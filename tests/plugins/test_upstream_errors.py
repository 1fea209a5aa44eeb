"""What upstreams call errors, vendor by vendor, and what callers may see of them."""

from __future__ import annotations

import email.utils
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    GatewayError,
    RequestTooLarge,
    UpstreamAuthError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
)
from gateway.http_client.upstream import Upstream
from gateway.plugins.upstream_errors import (
    clean,
    error_body,
    error_of_answer,
    error_of_document,
    raise_for_status,
    wait_asked,
)
from gateway.testing import FakeUpstream, Reply

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
TABLE = re.findall(
    r"^\| ([^|]+) \| ([^|]*)\| `(\w+)` \|$", PAGE.split("| status | words | error |\n", 1)[1], re.MULTILINE
)
ROWS = [
    (int(status), "".join(re.findall(r"`(.+)`", words)), kind)
    for statuses, words, kind in TABLE
    for status in re.findall(r"`(\d{3})`", statuses)
]


def of(status: int, document: Any, headers: dict[str, str] | None = None) -> GatewayError:
    body = document if isinstance(document, bytes) else msgspec.json.encode(document)
    return error_of_answer(status, headers or {}, body)


def openai(message: str, **rest: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **rest}}


@pytest.mark.parametrize(("status", "words", "kind"), ROWS)
def test_rows_of_the_page_equal_the_errors_raised_for_upstream_answers(status: int, words: str, kind: str) -> None:
    assert type(of(status, openai(words))).__name__ == kind


def test_page_has_a_row_for_each_status_with_its_own_error() -> None:
    told = {status: kind for status, words, kind in ROWS if not words}
    found = {status: type(of(status, openai(""))).__name__ for status in range(400, 600)}
    assert found == {status: told.get(status, "UpstreamError") for status in found}


@pytest.mark.parametrize(
    ("status", "document", "kind", "code", "retryable"),
    [
        (400, openai("Unsupported value: 'x'", param="temperature"), UpstreamRejected, "invalid_value", False),
        (422, {"object": "error", "message": {"detail": [{"msg": "bad"}]}}, UpstreamRejected, "invalid_value", False),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, UpstreamRejected, "invalid_value", False),
        (400, openai("x", code="context_length_exceeded"), ContextLengthExceeded, "context_length_exceeded", False),
        (400, openai("This model's maximum context length is 8192 tokens"), ContextLengthExceeded, None, False),
        (400, {"message": "prompt is too long: 9 tokens > 8"}, ContextLengthExceeded, None, False),
        (400, openai("filtered", code="content_filter"), ContentFiltered, "content_filter", False),
        (400, openai("x", innererror={"code": "ResponsibleAIPolicyViolation"}), ContentFiltered, None, False),
        (403, openai("Your input was flagged"), ContentFiltered, None, False),
        (401, openai("Incorrect API key provided: sk-abc"), UpstreamAuthError, "upstream_auth_error", True),
        (403, openai("Country not supported"), UpstreamAuthError, "upstream_auth_error", True),
        (
            402,
            {"error": {"message": "Insufficient credits", "code": 402}},
            UpstreamOverloaded,
            "service_unavailable",
            True,
        ),
        (429, openai("You exceeded your current quota", code="insufficient_quota"), UpstreamOverloaded, None, True),
        (400, openai("Your credit balance is too low"), UpstreamOverloaded, "service_unavailable", True),
        (404, openai("The model does not exist", code="model_not_found"), UpstreamError, "upstream_error", True),
        (404, {"error": {"code": "DeploymentNotFound", "message": "x"}}, UpstreamError, "upstream_error", True),
        (408, b"", UpstreamTimeout, "upstream_timeout", True),
        (409, b"", UpstreamError, "upstream_error", True),
        (424, b"", UpstreamError, "upstream_error", True),
        (425, b"", UpstreamError, "upstream_error", True),
        (413, b"", RequestTooLarge, "request_too_large", False),
        (429, openai("Rate limit reached"), UpstreamRateLimited, "slow_down", True),
        (498, b"", UpstreamOverloaded, None, True),
        (499, b"", UpstreamError, "upstream_error", True),
        (500, b"<html>", UpstreamError, "upstream_error", True),
        (503, openai("x", code="server_is_overloaded"), UpstreamOverloaded, "server_is_overloaded", True),
        (503, openai("Loading model", type="unavailable_error"), UpstreamOverloaded, "server_is_overloaded", True),
        (
            503,
            b'{"error":"server busy, please try again.  maximum pending requests exceeded"}',
            UpstreamOverloaded,
            None,
            True,
        ),
        (500, b'{"error":"error loading model: failed to load model from /m"}', UpstreamError, "upstream_error", True),
        (503, openai("x", type="service_unavailable_error"), UpstreamError, "upstream_error", True),
        (503, b"unavailable", UpstreamError, "upstream_error", True),
        (520, b"", UpstreamError, "upstream_error", True),
        (504, b"", UpstreamTimeout, "upstream_timeout", True),
        (524, b"", UpstreamTimeout, "upstream_timeout", True),
        (529, b"", UpstreamOverloaded, "server_is_overloaded", True),
        (302, b"", UpstreamInvalidResponse, "upstream_invalid_response", True),
        (451, b"", UpstreamError, "upstream_error", True),
    ],
)
def test_status_and_message_determine_the_error(
    status: int, document: Any, kind: type[GatewayError], code: str | None, retryable: bool
) -> None:
    error = of(status, document)
    assert type(error) is kind
    assert error.retryable is retryable
    if code is not None:
        assert error.code == code
    assert error.status not in {401, 403}


def test_caller_gets_the_message_and_param_of_the_error() -> None:
    error = of(400, openai("Unsupported value: 'temperature' must be 1", param="temperature"))
    assert (error.message, error.param) == ("Unsupported value: 'temperature' must be 1", "temperature")


@pytest.mark.parametrize("param", ["x\r\ny", 5, "a" * 500, "", ["a"]])
def test_missing_param_is_omitted(param: Any) -> None:
    assert of(400, openai("bad", param=param)).param is None


def test_messages_about_the_operators_account_are_hidden() -> None:
    for status in (401, 402, 403, 404, 429, 500, 503):
        error = of(status, openai("organization org-Secret0123456789 at api.vendor.internal"))
        assert "organization" not in error.body().decode()
        assert error.detail and error.detail.startswith(f"upstream status {status}")
        assert "organization" not in error.detail


@pytest.mark.parametrize(
    "leak",
    [
        "http://10.0.0.7:8000/v1/chat",
        "https://api.vendor.example/path?key=1",
        "10.0.0.7:8000",
        "vllm-0.models:8000",
        "api.internal.corp.local",
        "localhost",
        "sk-proj-abcdefgh1234",
        "sk-ant-api03-xyzxyz",
        "Bearer abcdefghijkl",
        "Basic dXNlcjpwYXNz",
        "AIzaSyA1234567890",
        "gsk_abcdef123456",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJI.eyJzdWIiOiIx.abc",
    ],
)
def test_addresses_and_credentials_are_removed_from_messages(leak: str) -> None:
    text = clean(f"could not use {leak}, sorry")
    assert leak not in text and leak.split(".")[0] not in text.replace("[removed]", "")
    assert text.startswith("could not use [removed]") and text.endswith("sorry")


def test_ordinary_messages_are_not_changed() -> None:
    for text in (
        "Invalid 'messages[0].content': string too long. Expected a string with maximum length 10.",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "tool_choice: expected one of none, auto, required at line 1:20",
    ):
        assert clean(text) == text


def test_messages_are_one_bounded_printable_line() -> None:
    text = clean("a\r\nb\x00\x1b[31m" + "x" * 10_000)
    assert text.startswith("a b[31mx") and len(text) <= 600


def test_the_key_in_use_is_removed_in_any_form() -> None:
    error = error_of_answer(400, {}, msgspec.json.encode(openai("bad key hunter2hunter2")), ("hunter2hunter2",))
    assert "hunter2" not in f"{error.message} {error.detail}"
    error = error_of_document({"message": "bad key hunter2hunter2", "code": 400}, ("hunter2hunter2",))
    assert "hunter2" not in f"{error.message} {error.detail}"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "1e99"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "x", "retry-after": "2"}, 2.0),
        ({}, None),
    ],
)
def test_retry_wait_is_read_from_the_headers(headers: dict[str, str], wait: float | None) -> None:
    assert wait_asked(headers) == wait


def test_retry_wait_given_as_a_date_is_read() -> None:
    wait = wait_asked({"retry-after": email.utils.formatdate(time.time() + 30, usegmt=True)})
    assert wait is not None and 27 < wait <= 31
    assert of(429, b"", {"retry-after": "9"}).retry_after == 9.0


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ("boom", UpstreamError),
        ({"message": "x", "code": "rate_limit_exceeded"}, UpstreamRateLimited),
        ({"message": "x", "type": "overloaded_error"}, UpstreamOverloaded),
        ({"message": "x", "type": "invalid_request_error"}, UpstreamRejected),
        ({"message": "x", "type": "authentication_error"}, UpstreamAuthError),
        ({"message": "x", "code": 503}, UpstreamError),
        ({"message": "x", "type": "server_error"}, UpstreamError),
        ([], UpstreamError),
        (7, UpstreamError),
        ({}, UpstreamError),
    ],
)
def test_error_documents_without_a_status_are_classified(document: Any, kind: type[GatewayError]) -> None:
    assert type(error_of_document(document)) is kind


@pytest.mark.parametrize("name", ["x-request-id", "request-id", "x-amzn-requestid", "apim-request-id"])
def test_error_has_the_upstreams_request_id_whichever_header_has_it(name: str) -> None:
    assert of(500, b"", {name: "req-7"}).upstream_request_id == "req-7"
    assert of(500, b"", {name: "a key with spaces, or worse"}).upstream_request_id == ""
    assert of(500, b"").upstream_request_id == ""


@pytest.mark.parametrize("status", [200, 201, 202, 203, 204])
async def test_answers_of_every_success_status_raise_nothing(status: int) -> None:
    async with FakeUpstream() as fake:
        upstream = Upstream()
        fake.enqueue(Reply(status=status, body=b"" if status == 204 else b"{}"))
        async with await upstream.send("POST", fake.url) as answer:
            await raise_for_status(answer)
            assert answer.status == status
        await upstream.close()


@pytest.mark.parametrize("status", [302, 400, 503])
async def test_answers_of_other_statuses_raise(status: int) -> None:
    async with FakeUpstream() as fake:
        upstream = Upstream()
        fake.enqueue(Reply(status=status, body=b"{}"))
        async with await upstream.send("POST", fake.url) as answer:
            with pytest.raises(UpstreamError):
                await raise_for_status(answer)
        await upstream.close()


async def refused(reply: Reply, **said: Any) -> GatewayError:
    """The error that a provider raises after it has read the body in the vendor's words."""
    async with FakeUpstream(lambda seen: reply) as fake:
        link = Upstream()
        try:
            async with await link.send("GET", fake.url) as answer:
                await error_body(answer)
                with pytest.raises(GatewayError) as caught:
                    await raise_for_status(answer, hidden=["s3cret-token"], **said)
                return caught.value
        finally:
            await link.close()


@pytest.mark.holds("plugins.md#errors-1")
@pytest.mark.parametrize("status", [400, 422])
async def test_reason_that_a_provider_has_read_is_the_message_without_hidden_texts(status: int) -> None:
    reply = Reply.json({"reason": "no birds"}, status=status)
    error = await refused(reply, message="no birds for s3cret-token today")
    assert type(error) is UpstreamRejected
    assert error.message == "no birds for [removed] today"


async def test_reason_that_a_provider_has_read_decides_the_class_of_the_error() -> None:
    error = await refused(Reply.json({"reason": "x"}, status=400), message="the prompt is too long: maximum context")
    assert type(error) is ContextLengthExceeded


@pytest.mark.holds("plugins.md#errors-1")
@pytest.mark.parametrize("status", [429, 529])
@pytest.mark.parametrize(
    ("asked", "wait"), [(7.0, 7.0), (None, 3.0), (0.0, 3.0), (-1.0, 3.0), (float("nan"), 3.0), (1e9, 3.0)]
)
async def test_pause_that_a_provider_has_read_goes_before_that_of_the_header(
    status: int, asked: float | None, wait: float
) -> None:
    reply = Reply.json({"reason": "slow"}, status=status, headers={"Retry-After": "3"})
    assert (await refused(reply, message="slow", retry_after=asked)).retry_after == wait


@pytest.mark.holds("plugins.md#errors-1")
async def test_body_that_a_provider_has_read_before_still_tells_the_error() -> None:
    assert (await refused(Reply.error(400, "temperature is too high"))).message == "temperature is too high"
    assert type(await refused(Reply.error(400, "x", code="insufficient_quota"))) is UpstreamOverloaded


def test_error_of_a_stream_has_the_pause_of_the_vendor() -> None:
    error = error_of_document({"message": "slow", "status": 429}, retry_after=7.0)
    assert (type(error), error.retry_after) == (UpstreamRateLimited, 7.0)
