"""Errors against the classes of their standards: whole answers of each dialect, and the events that end streams."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from gateway.testing import FakeUpstream, Reply
from gateway.testing.standards import faults_of, read_error
from tests import standards_hook

Document = dict[str, Any]

OPENAI: Document = {"error": {"message": "No", "type": "invalid_request_error", "param": None, "code": "invalid_value"}}
ANTHROPIC: Document = {
    "type": "error",
    "error": {
        "type": "overloaded_error",
        "message": "No",
        "details": {"error_code": "server_is_overloaded", "param": None},
    },
    "request_id": "req_1",
}
REASON = {"reason": "invalid_value", "domain": "gateway", "metadata": {"param": "contents"}}
GOOGLE: Document = {
    "error": {
        "code": 400,
        "message": "No",
        "status": "INVALID_ARGUMENT",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", **REASON},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.500s"},
        ],
    }
}
GEMINI = "/v1beta/models/m:streamGenerateContent"


def whole(path: str, document: Document) -> list[str]:
    reading = read_error(path, "application/json; charset=UTF-8", json.dumps(document).encode())
    assert reading is not None
    return reading.faults


def event(path: str, document: Document) -> list[str]:
    return faults_of(path, "text/event-stream", b"data: %b\n\n" % json.dumps(document).encode())


def element(path: str, document: Document) -> list[str]:
    return faults_of(path, "application/json", b"[%b]" % json.dumps(document).encode())


CASES: list[tuple[Callable[[str, Document], list[str]], str, Document]] = [
    *((whole, path, OPENAI) for path in ("/v1/chat/completions", "/v1/responses/r", "/v1/models", "/v1/nothing")),
    *((whole, path, ANTHROPIC) for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/models/m")),
    *((whole, path, GOOGLE) for path in (GEMINI, "/v1/models/m:embedContent", "/v1beta/models", "/v1/models")),
    *((event, path, OPENAI) for path in ("/v1/chat/completions", "/v1/audio/speech", "/v1/audio/transcriptions")),
    (event, "/v1/images/generations", {"type": "error", **OPENAI}),
    (event, "/v1/messages", ANTHROPIC),
    (event, GEMINI, GOOGLE),
    (element, GEMINI, GOOGLE),
]
each = pytest.mark.parametrize(("read", "path", "document"), CASES)
Read = Callable[[str, Document], list[str]]


def changed(document: Document, name: str, **values: Any) -> Document:
    """The document whose error has no such member, but these."""
    document = copy.deepcopy(document)
    document["error"] = {**{one: value for one, value in document["error"].items() if one != name}, **values}
    return document


@each
def test_error_in_the_form_of_its_dialect_has_no_faults(read: Read, path: str, document: Document) -> None:
    assert read(path, document) == []


@each
def test_member_that_is_missing_in_an_error_is_found(read: Read, path: str, document: Document) -> None:
    for name in document["error"].keys() - {"details"}:  # not every server has details
        if name != "status" or path != "/v1/models":  # the form is known by it there
            [found] = read(path, changed(document, name))
            assert f"{name}: Field required" in found


@each
def test_wrong_type_in_an_error_is_found(read: Read, path: str, document: Document) -> None:
    for name in document["error"]:
        assert read(path, changed(document, name, **{name: [[]]})), name


@each
def test_foreign_member_of_an_error_or_beside_it_is_found(read: Read, path: str, document: Document) -> None:
    for wrong in (changed(document, "", planted=1), {**document, "planted": 1}):
        [found] = read(path, wrong)
        assert "planted: unknown member" in found or "planted: Extra inputs" in found
    assert read(path, {**document, "x_planted": 1}) == []


@pytest.mark.parametrize(
    ("path", "document", "values"),
    [
        ("/v1/messages", ANTHROPIC, {"type": "server_error"}),
        ("/v1/messages", ANTHROPIC, {"details": {"param": None}}),
        (GEMINI, GOOGLE, {"status": "NO_SUCH_STATUS"}),
        (GEMINI, GOOGLE, {"details": [{"@type": "type.googleapis.com/google.rpc.Unknown"}]}),
    ],
)
def test_value_that_its_vendor_does_not_know_is_found(path: str, document: Document, values: Document) -> None:
    assert whole(path, changed(document, "", **values))


def test_answer_of_no_standard_is_not_read() -> None:
    assert read_error("/admin/v1/models", "application/json", b"{}") is None
    assert read_error("/healthz", "application/json", b"{}") is None
    assert read_error("/v1/messages", "text/html", b"<html>") is None


@pytest.mark.no_standard
@pytest.mark.skipif(not standards_hook.IS_ON, reason="answers are read on one interpreter")
async def test_refusal_and_failed_stream_that_a_test_gets_are_read_and_counted() -> None:
    refusal = json.dumps(changed(ANTHROPIC, "message")).encode()
    kind = {"Content-Type": "application/json"}
    failed = f"event: error\ndata: {json.dumps(changed(ANTHROPIC, '', planted=1))}\n\n".encode()
    answers = [
        Reply(status=529, headers=kind, body=refusal),
        Reply(frames=[failed], headers={"Content-Type": "text/event-stream"}),
    ]
    before, events = standards_hook.ANSWERS["Anthropic errors"], standards_hook.EVENTS["messages"]
    async with FakeUpstream() as upstream, aiohttp.ClientSession() as session:
        upstream.answer = lambda seen: answers.pop(0)
        for _ in range(2):
            async with session.post(f"{upstream.base_url}/messages", json={}) as response:
                await response.read()
    assert standards_hook.faults() == [
        f"{response.url.path}: error.message: Field required",
        f"{response.url.path}: 0 error: error.planted: unknown member",
    ]
    assert standards_hook.ANSWERS["Anthropic errors"] == before + 1
    assert standards_hook.EVENTS["messages"] == events + 1
