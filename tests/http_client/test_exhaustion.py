"""A connection that fails because this machine lacks a descriptor says nothing about the upstream."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from gateway.errors import GatewayError, Overloaded, UpstreamError
from gateway.http_client.connect import own_failure
from gateway.http_client.upstream import Upstream


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The process can open nothing more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    try:
        while True:
            try:
                taken.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in taken:
            os.close(descriptor)


@pytest.mark.holds("operations/network.md#connections-7")
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connection_without_a_descriptor_is_an_overload_and_no_failure_of_the_upstream(new_loop: Any) -> None:
    async def refused() -> GatewayError:
        client = Upstream()
        try:
            with no_descriptor_left():
                await client.send("GET", f"http://127.0.0.1:{listener.getsockname()[1]}/v1/models")
        except GatewayError as error:
            return error
        finally:
            await client.close()
        raise AssertionError("it was sent")

    with socket.create_server(("127.0.0.1", 0)) as listener, asyncio.Runner(loop_factory=new_loop) as runner:
        error = runner.run(asyncio.wait_for(refused(), 60.0))
    assert type(error) is Overloaded
    assert (error.status, error.code) == (503, "server_is_overloaded")
    assert not isinstance(error, UpstreamError)
    assert "files" in error.log_text()


def test_name_that_cannot_be_looked_up_for_want_of_a_descriptor_is_an_overload() -> None:
    unknown = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert own_failure(unknown) is None
    with no_descriptor_left():
        assert isinstance(own_failure(unknown), Overloaded)


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ETIMEDOUT, errno.ENETUNREACH])
def test_failures_of_the_upstream_or_the_network_are_no_overload(number: int) -> None:
    assert own_failure(OSError(number, "no")) is None
