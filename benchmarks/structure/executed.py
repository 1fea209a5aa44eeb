"""Which files and functions one warm streamed chat executes.

A real gateway serves the checkout, with the built-in `openai` provider before a local upstream. After warm-up calls one
client makes streamed chats one after the other on a kept-alive connection. A Python file is executed by a chat when one
of its functions runs in the thread of the worker's loop between the request's first byte and the call's access line; a
Lua file when it is part of a script that the store runs meanwhile. What runs in some of the chats only (timers,
reports) is listed apart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import redis
from msgspec import Struct

from benchmarks.checkout import Checkout
from benchmarks.fault import BenchFault
from benchmarks.probe import Probed, probed
from benchmarks.structure.monitor import monitored

# 20 chunks, 1 ms apart: at 5 ms the timer of the import hints (200 ms) ran in each of the chats, 10 functions.
MODEL = "mock-20x1"
WARM_UP = 20
CHATS = 15  # with 5, timers ran in each of them on a busy machine
#: No functions from Python 3.12 on.
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")


class Names(Struct, frozen=True):
    """Paths or functions: those that every chat executed, and those that some did."""

    always: frozenset[str]
    sometimes: frozenset[str]


class Executed(Struct, frozen=True):
    """What one warm streamed chat executes."""

    python: Names  # files, as paths inside the checkout
    lua: Names  # files
    functions: Names  # every Python function, also of libraries, as "file: qualified name"


def executed(checkout: Checkout) -> Executed:
    """Serve the checkout and look."""
    with probed(checkout, models=(MODEL,)) as worker:
        request = worker.request(model=MODEL, stream=True)
        for _ in range(WARM_UP):
            worker.call(request)
        ran = [_functions(worker, request) for _ in range(CHATS)]
        return Executed(
            _names([_files_of(functions, checkout) for functions in ran]),
            _names([_lua(worker, request, checkout) for _ in range(CHATS)]),
            _names([{_shown(file, name, checkout) for file, name in functions} for functions in ran]),
        )


def _names(windows: list[set[str]]) -> Names:
    always = frozenset(set.intersection(*windows))
    return Names(always, frozenset(set.union(*windows)) - always)


def _functions(worker: Probed, request: bytes) -> list[tuple[str, str]]:
    """The file and the qualified name of each function that ran in the worker meanwhile."""
    worker.commands.send("on")
    worker.call(request)
    return [(file, name) for file, name in worker.commands.send("off") if not name.endswith(("<module>", *INLINED))]


def _files_of(functions: list[tuple[str, str]], checkout: Checkout) -> set[str]:
    inside = {file: _inside(Path(file), checkout) for file, _ in functions}
    return {path for path in inside.values() if path}


def _shown(file: str, name: str, checkout: Checkout) -> str:
    return f"{_inside(Path(file), checkout) or file}: {name}"


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
    with redis.Redis(unix_socket_path=path) as client:
        lines = monitored(path, client, work)
        digests = {line.split(b'"')[3] for line in lines if b'] "evalsha" "' in line.lower()}
        return [_text_of(client, digest) for digest in sorted(digests)]


def _text_of(client: redis.Redis, digest: bytes) -> bytes:
    try:
        text = client.execute_command("SCRIPT SHOW", digest)  # type: ignore[no-untyped-call]
    except redis.ResponseError as error:
        raise BenchFault(f"the store does not show scripts (Valkey does from 8.0 on): {error}") from None
    return text if isinstance(text, bytes) else str(text).encode()
