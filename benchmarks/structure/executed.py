"""Which files one warm streamed chat executes.

A real gateway serves the checkout, with the built-in `openai` provider before a local upstream. After warm-up calls one
client makes streamed chats one after the other on a kept-alive connection. A Python file is executed by a chat when one
of its functions runs in the worker between the request's first byte and the call's access line; a Lua file when it is
part of a script that the store runs meanwhile. What runs in some of the chats only (timers, reports) is listed apart.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import redis
from msgspec import Struct

from benchmarks.checkout import Checkout
from benchmarks.fault import BenchFault
from benchmarks.probe import Probed, probed

MODEL = "mock-20x5"  # 20 chunks, 5 ms apart
WARM_UP = 20
CHATS = 5
END = b"bench-end-of-window"


class Files(Struct, frozen=True):
    """Paths inside the checkout: those that every chat executed, and those that some did."""

    always: frozenset[str]
    sometimes: frozenset[str]


class Executed(Struct, frozen=True):
    """What one warm streamed chat executes."""

    python: Files
    lua: Files


def executed(checkout: Checkout) -> Executed:
    """Serve the checkout and look."""
    with probed(checkout, models=(MODEL,)) as worker:
        request = worker.request(model=MODEL, stream=True)
        for _ in range(WARM_UP):
            worker.call(request)
        return Executed(
            _files([_python(worker, request, checkout) for _ in range(CHATS)]),
            _files([_lua(worker, request, checkout) for _ in range(CHATS)]),
        )


def _files(windows: list[set[str]]) -> Files:
    always = frozenset(set.intersection(*windows))
    return Files(always, frozenset(set.union(*windows)) - always)


def _python(worker: Probed, request: bytes, checkout: Checkout) -> set[str]:
    worker.commands.send("on")
    worker.call(request)
    ran = worker.commands.send("off")
    inside = {file: _inside(Path(file), checkout) for file, function in ran if function != "<module>"}
    return {path for path in inside.values() if path}


def _inside(file: Path, checkout: Checkout) -> str:
    """The file's path inside the checkout; empty for one of another project."""
    real = file.resolve()
    if not any(real.is_relative_to(folder.resolve()) for folder in checkout.folders().values()):
        return ""
    return real.relative_to(checkout.root.resolve()).as_posix()


def _lua(worker: Probed, request: bytes, checkout: Checkout) -> set[str]:
    scripts = _scripts_of(worker.server.store_socket, lambda: worker.call(request))
    found = set()
    for folder in checkout.folders().values():
        for file in folder.rglob("*.lua"):
            text = file.read_bytes().strip()
            if any(text in script for script in scripts):
                found.add(file.relative_to(checkout.root).as_posix())
    return found


def _scripts_of(path: str, work: Callable[[], None]) -> list[bytes]:
    """The texts of the scripts that a store runs while `work` is done."""
    with redis.Redis(unix_socket_path=path) as client, socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(path)
        monitor.sendall(b"MONITOR\r\n")
        monitor.recv(len(b"+OK\r\n"))
        work()
        client.echo(END.decode())
        log = b""
        while END not in log:
            if not (data := monitor.recv(65536)):
                raise BenchFault("the store ended MONITOR")
            log += data
        digests = {line.split(b'"')[3] for line in log.splitlines() if b'] "evalsha" "' in line.lower()}
        return [_text_of(client, digest) for digest in sorted(digests)]


def _text_of(client: redis.Redis, digest: bytes) -> bytes:
    try:
        text = client.execute_command("SCRIPT SHOW", digest)  # type: ignore[no-untyped-call]
    except redis.ResponseError as error:
        raise BenchFault(f"the store does not show scripts (Valkey does from 8.0 on): {error}") from None
    return text if isinstance(text, bytes) else str(text).encode()
