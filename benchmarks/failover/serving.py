"""This project's gateway before the failing provider: two retries, 30 seconds and one fallback set, or tuned."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders import Place, Running
from benchmarks.contenders.gateway import NO_CONSOLE, Gateway, GatewayAt
from benchmarks.cores import available_cores, share_out
from benchmarks.failover.situations import SITUATIONS
from benchmarks.upstream import Upstream

MODEL = """
[models."{name}"]
provider = "mock"
context_window = {window}
retries = 2
first_byte_timeout = 30.0
idle_timeout = 30.0
price = {{ input = 0.25, output = 2.0 }}
{further}
"""
TUNED = "first_token_timeout = 10.0\n"
TUNED_FALLBACK = 'prefill = "assistant"\n'


def models_of(*, tuned: bool) -> str:
    """The tables of the configuration."""
    text = [NO_CONSOLE]
    for situation in SITUATIONS:
        further = f'fallbacks = ["{situation.fallback}"]\n' + (TUNED if tuned else "")
        text.append(MODEL.format(name=situation.name, window=8_192, further=further))
    for name in ("healthy", "strict"):
        text.append(MODEL.format(name=name, window=128_000, further=TUNED_FALLBACK if tuned else ""))
    return "".join(text)


@contextmanager
def our_gateway(port: int, *, tuned: bool, workers: int, at: str = "") -> Iterator[Running]:
    """The gateway of this checkout, or of the one at `at`, before the provider at `port`."""

    class Ours(Gateway):
        def further_settings(self) -> str:
            return models_of(tuned=tuned)

    class Theirs(GatewayAt):
        def further_settings(self) -> str:
            return models_of(tuned=tuned)

    cores = available_cores()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        shared = share_out(cores, workers=1)
        shared = type(shared)(contender=cores, load=cores)  # the provider's timing matters, not the processor's time
        place = Place(Path(folder), cores=shared, upstream=Upstream(port, 0), models=("mock",), workers=workers)
        contender = Theirs(at) if at else Ours()
        with contender.running(place) as server:
            yield server
