"""The load generator: `run_load(Load(...), ...)` runs load.c once and answers with what it counted.

The callbacks are called when the measured time begins and ends; that is when to read the CPU of other processes. The
program ends itself by alarm when it overstays, so waiting for it is bounded.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.compiler import build
from benchmarks.cores import pinned
from benchmarks.fault import BenchFault

SOURCE = Path(__file__).with_name("load.c")
PROMPT = "Summarise in one sentence why a gateway in front of model providers should add as little delay as it can."
WORDS = " It was a bright cold day, and the clocks were late again."


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask for, and how hard. The model's name chooses the mock's answer: see mock.c."""

    mode: Literal["json", "open", "streams", "idle"]
    connections: int
    model: str = "mock"
    rate: float = 1.0  # requests per second, in mode open
    chunks: int = 0  # content chunks in a whole answer, in mode streams
    body: int = 0  # bytes of the request's body: the prompt is made longer until it has them


class Spread(msgspec.Struct, frozen=True):
    """Percentiles in milliseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class Result(msgspec.Struct, frozen=True):
    """What the load generator counted in the measured time; only whole answers with status 200 are `completed`."""

    seconds: float
    completed: int
    chunks: int
    streams: int
    held: int
    refused: int  # connections
    cut: int  # answers that ended early
    bad: int  # 200, but not what a client needs
    unanswered: int  # due in an open loop, and not answered seconds after its end
    statuses: dict[str, int]
    first_error: str
    latency: Spread | None = None
    first_chunk: Spread | None = None
    added: Spread | None = None  # a chunk's way from the mock to the client
    gap: Spread | None = None  # between two chunks of a stream
    upstream_late: Spread | None = None  # the mock behind its own schedule: large when the load's core is short of time

    @property
    def faults(self) -> str:
        """What went wrong, in a few words; empty when every answer was whole."""
        counts = {"refused": self.refused, "cut": self.cut, "not whole": self.bad, "unanswered": self.unanswered}
        counts |= {f"status {status}": count for status, count in self.statuses.items() if status != "200"}
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"{told} ({self.first_error.strip()})" if told and self.first_error else told


def http_request(load: Load, *, path: str, headers: dict[str, str]) -> bytes:
    """The whole HTTP request that the load generator repeats."""
    body = _body(load, PROMPT)
    if len(body) < load.body:
        missing = load.body - len(body)
        body = _body(load, PROMPT + (WORDS * (missing // len(WORDS) + 1))[:missing])
    fields = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "User-Agent": "model-gateway-bench",
        "Content-Length": str(len(body)),
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def _body(load: Load, prompt: str) -> bytes:
    return msgspec.json.encode(
        {
            "model": load.model,
            "messages": [
                {"role": "system", "content": "Answer briefly."},
                {"role": "user", "content": prompt},
            ],
            "temperature": 0.2,
            # The mock's streams deliver some 550 tokens. With fewer allowed it would be an upstream that breaks its
            # limit, and the gateway would ask the store for more money several times in each.
            "max_tokens": 1024,
            "stream": load.mode in ("streams", "idle"),
        }
    )


def run_load(
    load: Load,
    *,
    port: int,
    request: bytes,
    variants: int = 1,
    folder: Path,
    cores: Iterable[int],
    warmup: float,
    seconds: float,
    on_begin: Callable[[], None],
    on_end: Callable[[], None],
) -> Result:
    """Drive one server on loopback and count what comes back.

    `request` is one request, or so many `variants` of one length behind each other, which are sent in turn.
    """
    request_file = folder / "request.http"
    request_file.write_bytes(request)
    options: dict[str, object] = {
        "mode": load.mode,
        "port": port,
        "request": request_file,
        "variants": variants,
        "connections": load.connections,
        "rate": load.rate,
        "chunks": load.chunks,
        "warmup": warmup,
        "seconds": seconds,
    }
    command = [str(build(SOURCE)), *(part for name, value in options.items() for part in (f"--{name}", str(value)))]
    with pinned(cores):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            event = msgspec.json.decode(line, type=dict[str, object])["event"]
            if event == "result":
                return msgspec.json.decode(line, type=Result)
            (on_begin if event == "begin" else on_end)()
        raise BenchFault(f"the load generator ended without a result (exit {process.wait()})")
    finally:
        process.kill()
        process.communicate()
