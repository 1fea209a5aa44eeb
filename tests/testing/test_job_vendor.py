"""The second reference plugin: sign-in with a token that expires, uploads, jobs, NDJSON, and cancelled jobs."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from gateway import ChatChunk, ChatCompletion, ChatRequest, Secret, Target, Timeouts, Upstream, fold_chat
from gateway.errors import (
    InvalidValue,
    UpstreamAuthError,
    UpstreamError,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTruncated,
    UpstreamUnreachable,
)
from gateway.testing import FakeUpstream, Reply, ask, check_provider, collect, conformance
from gateway.testing.openai_dialect import PIXEL, read_form
from tests.polling import at_once, until
from tests.testing.job_vendor import JobProvider
from tests.testing.job_vendor.session import Session
from tests.testing.job_vendor.vendor import KEY, Vendor
from tests.testing.one_case import only

TARGET = Target("jobs", "model")


def secret(text: str = KEY) -> Secret:
    return Secret("literal", text)


class Running:
    """A started provider beside its vendor."""

    def __init__(self, provider: JobProvider, vendor: Vendor, fake: FakeUpstream) -> None:
        self.provider, self.vendor, self.fake = provider, vendor, fake

    async def chat(self, request: ChatRequest | None = None) -> ChatCompletion:
        return await fold_chat(self.provider.stream_chat(request or ask("one two"), TARGET))

    def requests(self) -> list[str]:
        return [f"{seen.method} {seen.path}" for seen in self.fake.seen]


@asynccontextmanager
async def running(vendor: Vendor, *, key: str = KEY) -> AsyncIterator[Running]:
    async with FakeUpstream(vendor.answer) as fake:
        upstream = Upstream()
        provider = JobProvider(JobProvider.Options(fake.url, secret(key)), upstream)
        await provider.start()
        try:
            yield Running(provider, vendor, fake)
        finally:
            await provider.close()
            await upstream.close()


def test_provider_of_jobs_conforms() -> None:
    options = {"base_url": "{upstream}", "api_key": secret()}
    passed = check_provider(JobProvider, options=options, upstream=FakeUpstream(Vendor().answer))
    assert {"frames_may_be_split_anywhere", "cut_stream_never_looks_whole", "leaving_closes_the_upstream"} <= set(
        passed
    )


class EndsEarly(JobProvider):
    """Takes the end of the connection for the end of the answer."""

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        try:
            async for chunk in super().stream_chat(request, target):
                yield chunk
        except UpstreamTruncated:
            yield ChatChunk.finish("stop")


class HidesTheReason(JobProvider):
    """Takes every refusal of a job for a failure of the vendor."""

    async def _create(self, *arguments: Any) -> str:
        try:
            return await super()._create(*arguments)
        except UpstreamRejected:
            raise UpstreamError() from None


class WaitsForEver(JobProvider):
    """Does not pass on the timeouts of the target."""

    async def _create(self, path: str, body: Any, timeouts: Timeouts) -> str:
        return await super()._create(path, body, Timeouts())


class RefusesTheCaller(JobProvider):
    """Takes a sign-in that does not answer for a fault of the caller's request."""

    async def start(self) -> None:
        await super().start()
        self._session.token = self._token  # type: ignore[method-assign]

    async def _token(self, timeouts: Timeouts) -> str:
        try:
            return await Session.token(self._session, timeouts)
        except UpstreamUnreachable:
            raise UpstreamRejected() from None


@pytest.mark.parametrize(
    ("provider", "name", "complaint"),
    [
        (EndsEarly, "cut_answer_is_an_error", "gave an answer instead of an error"),
        (HidesTheReason, "statuses_become_typed_errors", "status 400, from request 2 of 3 on: it gave UpstreamError"),
        (RefusesTheCaller, "hang_up_is_unreachable", "from request 1 of 3 on: it gave UpstreamRejected"),
    ],
)
def test_kit_reports_a_fault_in_any_request_of_a_call(
    provider: type[JobProvider], name: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(name, monkeypatch)
    options = {"base_url": "{upstream}", "api_key": secret()}
    with pytest.raises(AssertionError, match=f"{name}: .*{complaint}"):
        check_provider(provider, options=options, upstream=FakeUpstream(Vendor().answer))


def test_kit_names_the_request_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    only("silence_times_out", monkeypatch)
    monkeypatch.setattr(conformance, "CASE_WITHIN", 2.0)
    options = {"base_url": "{upstream}", "api_key": secret()}
    complaint = "it had not ended after 2 s; its last request was POST /sign-in, whose answer is 'open'"
    with pytest.raises(AssertionError, match=complaint):
        check_provider(WaitsForEver, options=options, upstream=FakeUpstream(Vendor().answer))


async def test_token_serves_calls_until_it_expires() -> None:
    async with running(Vendor()) as lasting, running(Vendor(expires_in=0.0)) as ending:
        for one in (lasting, ending):
            await one.chat()
            await one.chat()
        assert lasting.requests().count("POST /sign-in") == 1
        assert ending.requests().count("POST /sign-in") > 2


async def test_token_that_the_vendor_ended_is_replaced_within_the_call() -> None:
    vendor = Vendor()
    async with running(vendor) as one:
        await one.chat()
        vendor.revoke()
        answer = await one.chat()
        assert answer.choices[0].message.content == "one two "
        assert one.requests()[3:] == ["POST /jobs", "POST /sign-in", "POST /jobs", "GET /jobs/job-2/events"]


async def test_refused_key_is_an_error_about_the_operator() -> None:
    async with running(Vendor(), key="sk-of-another-vendor") as one:
        with pytest.raises(UpstreamAuthError):
            await one.chat()


async def test_images_are_uploaded_before_the_job() -> None:
    vendor = Vendor()
    parts = [
        {"type": "text", "text": "describe"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]
    async with running(vendor) as one:
        await one.chat(ask(fields={"messages": [{"role": "user", "content": parts}]}))
        assert one.requests() == ["POST /sign-in", "POST /files", "POST /jobs", "GET /jobs/job-1/events"]
        assert vendor.jobs == [{"model": "model", "prompt": "describe", "images": ["file-1"]}]
        (upload,) = vendor.uploads
        assert base64.b64decode(PIXEL) in upload.body and read_form(upload)[1] == len(base64.b64decode(PIXEL))


def test_collect_gives_the_answer_of_an_upstream() -> None:
    vendor = Vendor()
    fake = FakeUpstream(vendor.answer)
    answer = collect(
        JobProvider, ask("one two"), options={"base_url": "{upstream}", "api_key": secret()}, upstream=fake
    )
    assert answer.choices[0].message.content == "one two "
    assert [seen.method for seen in fake.seen] == ["POST", "POST", "GET"] and not vendor.cancelled


async def test_image_that_is_not_in_the_request_is_refused() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://images.invalid/1.png"}}
    async with running(Vendor()) as one:
        with pytest.raises(InvalidValue):
            await one.chat(ask(fields={"messages": [{"role": "user", "content": [part]}]}))


async def test_job_is_cancelled_when_its_call_is_left_and_only_then() -> None:
    vendor = Vendor()
    async with running(vendor) as one:
        await one.chat()
        stream = one.provider.stream_chat(ask("one two"), TARGET)
        assert isinstance(await anext(stream), ChatChunk)
        await stream.aclose()  # type: ignore[attr-defined]  # a generator
        await until(lambda: vendor.cancelled)
        assert vendor.cancelled == ["job-2"]


@pytest.mark.parametrize("delay", [0.05, 0.5])
async def test_job_whose_call_is_left_during_its_post_is_cancelled(delay: float) -> None:
    vendor = Vendor()
    async with running(vendor) as one:
        one.fake.tamper = lambda reply: structs.replace(reply, delay=delay if vendor.jobs else 0.0)
        call = asyncio.create_task(one.chat())
        await until(lambda: vendor.jobs)
        call.cancel()
        async with at_once(within=0.2):
            with pytest.raises(asyncio.CancelledError):
                await call
        await until(lambda: vendor.cancelled)
        assert (len(vendor.jobs), vendor.cancelled) == (1, ["job-1"])


async def test_provider_that_closes_waits_for_the_job_that_was_left_and_cancels_it() -> None:
    vendor = Vendor()
    async with running(vendor) as one:
        one.fake.tamper = lambda reply: structs.replace(reply, delay=0.2 if vendor.jobs else 0.0)
        call = asyncio.create_task(one.chat())
        await until(lambda: vendor.jobs)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert vendor.cancelled == ["job-1"]


async def test_job_that_was_refused_is_not_cancelled() -> None:
    vendor = Vendor()
    async with running(vendor) as one:
        one.fake.tamper = lambda reply: reply if reply.status == 201 else Reply.error(400, "no")
        with pytest.raises(UpstreamRejected):
            await one.chat()
    assert one.requests() == ["POST /sign-in", "POST /jobs"]


async def test_calls_one_after_the_other_do_not_give_up_a_connection_each() -> None:
    async with running(Vendor()) as one:
        # The end of the body comes a moment after the last event.
        one.fake.tamper = lambda reply: (
            reply if reply.frames is None else structs.replace(reply, frames=[*reply.frames, b"\n"], interval=0.005)
        )
        for _ in range(10):
            await one.chat()
        assert len({seen.port for seen in one.fake.seen}) <= 3


async def test_failed_job_is_the_error_that_it_names() -> None:
    vendor = Vendor()
    async with running(vendor) as one:
        event = {"event": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down"}}
        one.fake.tamper = lambda reply: (
            reply if reply.frames is None else type(reply)(frames=[json.dumps(event).encode()])
        )
        with pytest.raises(UpstreamRateLimited):
            await one.chat()
