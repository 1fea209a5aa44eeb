"""The conformance kit on what a chat provider sends, and on errors in the vendor's own shape."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import UNSET, Struct

from gateway import (
    Answer,
    Chat,
    ChatChunk,
    ChatRequest,
    CompletionUsage,
    ImagePart,
    Provider,
    Target,
    TextPart,
    UserMessage,
    error_body,
    raise_for_status,
)
from gateway.errors import InvalidValue, UpstreamError, UpstreamTruncated
from gateway.testing import FakeUpstream, Reply, Seen, check_provider
from tests.polling import turns
from tests.testing.one_case import only


class Line(Struct):
    """One line of an answer; the last one counts."""

    text: str = ""
    counted: int | None = None


class Refusal(Struct):
    """The vendor's error."""

    reason: str = ""
    retry_in: float | None = None


def vendor(seen: Seen) -> Reply:
    """Repeats the last turn word by word."""
    words = str(seen.json["turns"][-1]).split()
    return Reply.lines([*({"text": f"{word} "} for word in words), {"counted": len(words)}])


def refusal(status: int, text: str) -> Reply:
    return Reply.json({"reason": text, "retry_in": 7}, status=status)


class Speaker(Provider, Chat):
    """A provider without fault, for the others to break."""

    name = "speaker"
    chat_fields: ClassVar[frozenset[str] | None] = frozenset({"tools", "image_url"})

    class Options(Struct, forbid_unknown_fields=True):
        address: str

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        body = msgspec.json.encode(self.body(request, target))
        url = f"{self.options.address}/say"
        async with await self.upstream.send("POST", url, body=body, timeouts=target.timeouts) as answer:
            await self.check(answer)
            async for data in answer.lines():
                line = self.line(data)
                if line.counted is not None:
                    yield ChatChunk.finish("stop")
                    yield ChatChunk.with_usage(CompletionUsage(1, line.counted, 1 + line.counted))
                    return
                yield ChatChunk.text(line.text)
            raise UpstreamTruncated()

    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        return {
            "model": target.model,
            "turns": [self.text(message.content) for message in request.messages],
            "images": [*self.images(request)],
            "limit": request.max_output,
            "tools": request.as_tools,
        }

    def text(self, content: Any) -> str:
        if isinstance(content, str):
            return content
        return " ".join(part.text for part in content if isinstance(part, TextPart))

    def images(self, request: ChatRequest) -> list[str]:
        parts = [part for one in request.messages if isinstance(one, UserMessage) for part in one.content]
        return [part.image_url.url for part in parts if isinstance(part, ImagePart)]

    def line(self, data: bytes) -> Line:
        try:
            return msgspec.json.decode(data, type=Line)
        except msgspec.MsgspecError:
            raise UpstreamTruncated() from None

    async def check(self, answer: Answer) -> None:
        said = self.refusal(await error_body(answer))
        await raise_for_status(answer, message=said.reason, retry_after=said.retry_in)

    def refusal(self, body: bytes) -> Refusal:
        try:
            return msgspec.json.decode(body, type=Refusal)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return Refusal()


def check(provider: type[Provider], **more: Any) -> Any:
    return check_provider(provider, options={"address": "{upstream}"}, upstream=FakeUpstream(vendor), **more)


class NoLimit(Speaker):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        return super().body(request, target) | {"limit": None}


class OneSpellingOfTheLimit(Speaker):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        limit = None if request.max_tokens is UNSET else request.max_tokens
        return super().body(request, target) | {"limit": limit}


class HigherLimit(Speaker):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        return super().body(request, target) | {"limit": 10 * (request.max_output or 1)}


class OtherModel(Speaker):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        return super().body(request, target) | {"model": target.public_model}


class LastTurnOnly(Speaker):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        body = super().body(request, target)
        return body | {"turns": body["turns"][-1:]}


class NoSystem(Speaker):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        turns = [self.text(message.content) for message in request.messages if message.role != "system"]
        return super().body(request, target) | {"turns": turns}


class NoTools(Speaker):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        return super().body(request, target) | {"tools": []}


class ToolNamesOnly(Speaker):
    def body(self, request: ChatRequest, target: Target) -> dict[str, Any]:
        names = [tool.function.name for tool in request.tools or []]  # type: ignore[union-attr]
        return super().body(request, target) | {"tools": names}


class NoImages(Speaker):
    def images(self, request: ChatRequest) -> list[str]:
        return []


class LosesTheReason(Speaker):
    async def check(self, answer: Answer) -> None:
        await raise_for_status(answer, retry_after=self.refusal(await error_body(answer)).retry_in)


class LosesThePause(Speaker):
    async def check(self, answer: Answer) -> None:
        await raise_for_status(answer, message=self.refusal(await error_body(answer)).reason)


class AnswersAnother(Speaker):
    """Keeps the request of a call in the instance while another call may begin."""

    request: ChatRequest

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        self.request = request
        await turns()
        async for chunk in super().stream_chat(self.request, target):
            yield chunk


class AnswersTheLast(Speaker):
    """Answers the request of the call before."""

    last: ChatRequest | None = None

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        last, self.last = self.last or request, request
        async for chunk in super().stream_chat(last, target):
            yield chunk


class CountsTheOthers(Speaker):
    """Says how many calls are under way."""

    calls = 0

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        self.calls += 1
        async for chunk in super().stream_chat(request, target):
            yield chunk
        self.calls -= 1

    def line(self, data: bytes) -> Line:
        line = super().line(data)
        return Line(f"{self.calls} " if line.text else "", line.counted)


@pytest.mark.parametrize(
    ("provider", "case", "complaint"),
    [
        (NoLimit, "output_limit_is_sent", "the call did not send the output limit, 3217"),
        (OneSpellingOfTheLimit, "output_limit_is_sent", "which the caller sent as `max_completion_tokens`"),
        (HigherLimit, "output_limit_is_sent", "the call did not send the output limit, 3217"),
        (OtherModel, "model_is_sent", "the call did not send target.model, 'upstream-model'"),
        (LastTurnOnly, "earlier_messages_are_sent", "the call did not send the earlier message of the system"),
        (NoSystem, "earlier_messages_are_sent", "the call did not send the earlier message of the system"),
        (NoTools, "tools_are_sent", "the call did not send the tool, which `chat_fields` names: find_heron"),
        (ToolNamesOnly, "tools_are_sent", "the call did not send the tool, which `chat_fields` names: wingspan"),
        (NoImages, "images_are_sent", "the call did not send the image, which `chat_fields` names"),
        (AnswersAnother, "calls_at_once_do_not_mix", "calls got each other's answers: 'number 0 is the word' gave "),
        (AnswersTheLast, "calls_at_once_do_not_mix", "calls got each other's answers: 'number 1 is the word' gave "),
        (CountsTheOthers, "calls_at_once_do_not_mix", "calls at once got other answers: 'number 0 is the word' gave "),
        (
            LosesTheReason,
            "refusals_of_the_vendor_become_typed_errors",
            "the call with status 400 in the vendor's shape: the vendor's reason is lost",
        ),
        (
            LosesThePause,
            "refusals_of_the_vendor_become_typed_errors",
            "the call with status 429 in the vendor's shape: the vendor's pause of 7 s is lost, retry_after is 1",
        ),
    ],
)
def test_kit_reports_what_is_not_sent_and_what_is_lost(
    provider: type[Provider], case: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(case, monkeypatch)
    assert check(Speaker, refusal=refusal) == [case]
    with pytest.raises(AssertionError, match=f"{provider.__name__}, {case}: .*{complaint}"):
        check(provider, refusal=refusal)


class TriesAgain(Speaker):
    """Sends a request again that the vendor did not serve."""

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        try:
            async for chunk in super().stream_chat(request, target):
                yield chunk
        except UpstreamError as error:
            if error.status < 500:
                raise
            async for chunk in super().stream_chat(request, target):
                yield chunk


def test_kit_reports_a_request_that_is_repeated_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    only("statuses_become_typed_errors", monkeypatch)
    with pytest.raises(AssertionError, match=r"the call with status \d+: the provider sent the same request again"):
        check(TriesAgain)


class WithoutLimit(NoLimit):
    def output_limit(self, request: ChatRequest, target: Target) -> int | None:
        return None


class OfTextOnly(NoTools):
    chat_fields = frozenset({"temperature"})


class RefusesImages(Speaker):
    def images(self, request: ChatRequest) -> list[str]:
        if super().images(request):
            raise InvalidValue("This model takes addresses of images only.", param="messages")
        return []


@pytest.mark.parametrize(
    ("provider", "case", "reason"),
    [
        (WithoutLimit, "output_limit_is_sent", "`output_limit` says that no limit is sent"),
        (OfTextOnly, "tools_are_sent", "`chat_fields` does not name tools"),
        (OfTextOnly, "images_are_sent", "`chat_fields` does not name image_url"),
        (RefusesImages, "images_are_sent", "the provider refuses an image: This model takes addresses of images only."),
        (
            Speaker,
            "refusals_of_the_vendor_become_typed_errors",
            "`check_provider` was given no `refusal`",
        ),
    ],
)
def test_case_about_what_a_provider_does_not_declare_is_skipped(
    provider: type[Provider], case: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(case, monkeypatch)
    report = check(provider)
    assert report == []
    assert report.skipped == {case: reason}


class Uncounted(Speaker):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        async for chunk in super().stream_chat(request, target):
            if not chunk.usage:
                yield chunk


def test_vendor_without_counts_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    only("usage_is_told", monkeypatch)
    with pytest.raises(AssertionError, match="the whole answer: the vendor's counts are lost, usage is None"):
        check(Uncounted)
    assert "usage_is_told" in check(Uncounted, sends_counts=False).skipped


class NeverAlike(Speaker):
    answers = 0

    def line(self, data: bytes) -> Line:
        line = super().line(data)
        self.answers += 1
        return Line(f"{self.answers} " if line.text else "", line.counted)


@pytest.mark.parametrize(
    ("provider", "case", "note"),
    [
        (NeverAlike, "calls_at_once_do_not_mix", "answers at once were not compared"),
        (Speaker, "calls_at_once_do_not_mix", ""),
    ],
)
def test_kit_notes_what_only_the_author_can_judge(
    provider: type[Provider],
    case: str,
    note: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    only(case, monkeypatch)
    report = check(provider)
    assert report == [case]
    assert [note in said for said in report.notes] == ([True] if note else [])
    assert capsys.readouterr().out == "".join(f"check_provider, {provider.__name__}: {one}\n" for one in report.notes)


def test_kit_notes_that_equal_answers_to_all_questions_cannot_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    only("calls_at_once_do_not_mix", monkeypatch)
    upstream = FakeUpstream(lambda seen: Reply.lines([{"text": "yes "}, {"counted": 1}]))
    report = check_provider(Speaker, options={"address": "{upstream}"}, upstream=upstream)
    assert len(report.notes) == 1 and "all questions have the same answer" in report.notes[0]
