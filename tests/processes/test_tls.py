"""`gateway serve` with TLS of its own: real clients, renewal beside a stream, a broken pair, client certificates."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from gateway.cli import cli
from gateway.testing.ports import free_ports
from tests.certificate_files import CertificateFiles, served_serial
from tests.http_server.test_tls_pair import other_key
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import Served

pytestmark = pytest.mark.slow

EXPIRY, REFUSED = "gateway_tls_certificate_expiry_timestamp_seconds", "gateway_tls_renewal_refused"
HI: Any = [{"role": "user", "content": "Hi"}]


def settings(files: CertificateFiles) -> str:
    return f'tls_cert = "{files.cert}"\ntls_key = "{files.key}"\n'


async def serials(port: int, context: ssl.SSLContext, count: int = 12) -> set[int]:
    """Of the certificates of so many connections, which the system distributes over the workers."""
    found = set()
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        found.add(served_serial(writer.get_extra_info("ssl_object")))
        writer.close()
    return found


async def page(url: str, context: ssl.SSLContext) -> tuple[int, Any]:
    """Status and headers of an address."""
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
        return answer.status, answer.headers


@asynccontextmanager
async def client_of(gateway: Served, context: ssl.SSLContext) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's SDK."""
    async with AsyncOpenAI(
        base_url=f"https://127.0.0.1:{gateway.port}/v1",
        api_key=gateway.api_key,
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(verify=context),
    ) as client:
        yield client


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "tls")


@pytest.mark.holds("operations/tls.md#renewal-1", "operations/tls.md#renewal-2", "operations/tls.md#set-it-up-2")
async def test_renewal_beside_a_stream_and_a_broken_pair_lose_nothing(yard: Yard, files: CertificateFiles) -> None:
    [console] = free_ports(1)
    gateway = yard.make(workers=2, server=settings(files), console_port=console)
    await gateway.started(workers=2)
    await asyncio.to_thread(gateway.create_key)
    context = files.client()
    assert f"serving on https://127.0.0.1:{gateway.port}/v1" in gateway.text
    assert (await gateway.metrics())[EXPIRY] == files.pairs().ends

    async with client_of(gateway, context) as client:
        stream = await client.chat.completions.create(model="lasting", messages=HI, stream=True)
        pieces = [await anext(stream) for _ in range(3)]
        before = files.serial()
        renewed = files.issue()

        async def is_renewed(port: int) -> bool:
            return await serials(port, context) == {renewed}

        assert renewed != before
        await until(lambda: is_renewed(gateway.port))
        await until(lambda: is_renewed(console))
        pieces += [piece async for piece in stream]
        assert pieces[-1].choices == [] or pieces[-1].choices[0].finish_reason == "stop"
        assert (await client.chat.completions.create(model="quick", messages=HI)).choices[0].message.content

    whole = files.key.read_bytes()
    other_key(files.key)

    async def is_refused() -> bool:
        return (await gateway.metrics())[REFUSED] == 1

    await until(is_refused)
    assert f"the new certificate is not used, the one in force stays: server.tls_key: {files.key}" in gateway.text
    killed = gateway.workers
    for worker in killed:
        os.kill(worker, signal.SIGKILL)

    async def is_replaced() -> bool:
        return not set(killed) & set(gateway.workers) and (await gateway.metrics())["gateway_workers"] == 2

    await until(is_replaced)
    assert await serials(gateway.port, context) == {renewed}
    files.key.write_bytes(whole)

    async def is_sound() -> bool:
        return (await gateway.metrics())[REFUSED] == 0

    await until(is_sound)


async def test_stream_outlives_the_replacement_of_its_worker(yard: Yard, files: CertificateFiles) -> None:
    gateway = yard.make(server=settings(files))
    await gateway.started()
    await asyncio.to_thread(gateway.create_key)
    async with client_of(gateway, files.client()) as client:
        stream = await client.chat.completions.create(model="lasting", messages=HI, stream=True)
        pieces = [await anext(stream) for _ in range(3)]
        [replaced] = gateway.workers
        os.kill(replaced, signal.SIGTERM)
        async with client_of(gateway, files.client()) as other:  # a connection of its own waits for the next worker
            assert (await other.chat.completions.create(model="quick", messages=HI)).choices[0].message.content
        assert replaced in gateway.workers
        pieces += [piece async for piece in stream]
    assert "stop" in {choice.finish_reason for piece in pieces for choice in piece.choices}


@pytest.mark.holds("operations/tls.md#set-it-up-2")
async def test_console_and_commands_work_over_tls(yard: Yard, files: CertificateFiles) -> None:
    [port] = free_ports(1)
    gateway = yard.make(server=settings(files), console_port=port)
    await gateway.started()
    url = f"https://127.0.0.1:{port}"
    status, headers = await page(f"{url}/sign-in", files.client())
    assert status == 200
    assert headers["Strict-Transport-Security"] == "max-age=2592000"
    assert all("Secure" in cookie and cookie.startswith("__Host-") for cookie in headers.getall("Set-Cookie"))
    created = await gateway.command("users", "create", "ann@example.com", "--operator")
    assert created["link"].startswith(f"{url}/")
    token = (await gateway.command("tokens", "create", "ci", "--scopes", "read,accounts"))["token"]
    line = ["accounts", "list", "--json", "--server", url, "--token", "env:TOKEN"]

    def command(*more: str) -> Any:
        return CliRunner().invoke(cli, [*line, *more], env={"TOKEN": token})

    done = await asyncio.to_thread(command, "--ca", str(files.client_ca))
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])
    refused = await asyncio.to_thread(command)
    assert refused.exit_code == 1
    assert "name its CA with --ca" in refused.stderr


@pytest.mark.holds("operations/tls.md#client-certificates-1")
async def test_callers_and_people_need_certificates_of_their_authorities(yard: Yard, files: CertificateFiles) -> None:
    [port] = free_ports(1)
    people = CertificateFiles(files.folder / "people")
    gateway = yard.make(
        server=f'{settings(files)}tls_client_ca = "{files.client_ca}"\n',
        console=f'tls_client_ca = "{people.client_ca}"\n',
        console_port=port,
    )
    await gateway.started()
    await asyncio.to_thread(gateway.create_key)
    async with client_of(gateway, files.client(files.authority)) as client:
        assert (await client.chat.completions.create(model="quick", messages=HI)).choices[0].message.content
    for context in (files.client(), files.client(people.authority)):
        with pytest.raises((aiohttp.ClientError, OSError)):
            await page(f"https://127.0.0.1:{gateway.port}/v1/models", context)
    assert "for their certificate, the last one: 127.0.0.1: the client has no certificate" in gateway.text

    assert (await page(f"https://127.0.0.1:{port}/sign-in", files.client(people.authority)))[0] == 200
    token = (await gateway.command("tokens", "create", "ci", "--scopes", "read,accounts"))["token"]
    own = people.authority.issue_cert("client@example.com")
    own.private_key_and_cert_chain_pem.write_to_path(str(people.folder / "own.pem"))
    line = ["accounts", "list", "--json", "--server", f"https://127.0.0.1:{port}", "--token", "env:TOKEN", "--ca"]

    def command(*more: str) -> Any:
        return CliRunner().invoke(cli, [*line, str(files.client_ca), *more], env={"TOKEN": token})

    assert (await asyncio.to_thread(command)).exit_code == 1
    done = await asyncio.to_thread(command, "--client-cert", str(people.folder / "own.pem"))
    assert done.exit_code == 0, done.stderr
    wrong = await asyncio.to_thread(command, "--client-cert", str(people.cert))
    assert (wrong.exit_code, wrong.stderr.strip()) == (
        1,
        f"gateway: {people.cert} has no certificate with its key in PEM form",
    )


@pytest.mark.holds("operations/tls.md#set-it-up-1")
async def test_files_that_do_not_fit_together_prevent_the_start(yard: Yard, files: CertificateFiles) -> None:
    other_key(files.key)
    gateway = yard.make(server=settings(files))
    gateway.launch()
    assert await gateway.ended() == 1
    said = f"gateway: server.tls_key: {files.key} is not the key of the certificate in server.tls_cert"
    assert gateway.text.splitlines()[-1] == said
