"""`gateway serve` behind a proxy of the environment: a tunnel to a server with TLS, in a real worker."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from gateway.testing import FakeUpstream
from tests.http_client.forward_proxy import ForwardProxy, either, pass_on
from tests.processes.conftest import Yard

CREDENTIALS = "gate:canary-word"
MODELS = """
[providers.proxied]
plugin = "openai"
base_url = "https://localhost:{port}/v1"
api_key = "env:UPSTREAM_KEY"
proxy = "env"

[providers.direct]
plugin = "openai"
base_url = "https://localhost:{port}/v1"
api_key = "env:UPSTREAM_KEY"

[models.proxied]
provider = "proxied"
retries = 0
price = {{ input = 1, output = 2 }}

[models.direct]
provider = "direct"
retries = 0
price = {{ input = 1, output = 2 }}
"""


@asynccontextmanager
async def with_tls(upstream: FakeUpstream, context: ssl.SSLContext) -> AsyncIterator[int]:
    """The port under which that server is reached by TLS."""
    port = int(upstream.url.rpartition(":")[2])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection("127.0.0.1", port)
        await either(pass_on(reader, out), pass_on(there, writer))
        out.transport.abort()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.holds("operations/network.md#http-proxies-1")
async def test_proxy_of_the_environment_is_used_only_by_providers_configured_for_it(yard: Yard, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    async with (
        FakeUpstream() as upstream,
        ForwardProxy(credentials=CREDENTIALS) as proxy,
        with_tls(upstream, context) as port,
    ):
        gateway = yard.make(MODELS.format(port=port))
        for name in ("http_proxy", "https_proxy", "no_proxy", "NO_PROXY"):
            gateway.environment.pop(name, None)
        gateway.environment |= {
            "HTTPS_PROXY": proxy.url.replace("://", f"://{CREDENTIALS}@"),
            "SSL_CERT_FILE": str(tmp_path / "authority.pem"),
            "UPSTREAM_KEY": "sk-upstream-canary-0123456789",
        }
        await gateway.started()
        await asyncio.to_thread(gateway.create_key)
        answer = await gateway.chat("proxied")
        assert answer.status == 200, gateway.text
        assert (await gateway.stream("proxied").ended()).whole
        assert [head.partition(b"\r\n")[0] for head in proxy.heads] == [b"CONNECT localhost:%d HTTP/1.1" % port]
        assert b"sk-upstream" not in proxy.heads[0]
        assert (await gateway.chat("direct")).status == 200
        assert (len(proxy.heads), len(upstream.seen)) == (1, 3)
        assert "canary" not in gateway.text
        await gateway.proved()
