"""Asks for every page and route several times: time, bytes, and the most memory of the console's process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from statistics import median
from time import monotonic

from msgspec import Struct

from benchmarks.console.sessions import Visitor
from benchmarks.fault import BenchFault
from benchmarks.installation.commands import told
from benchmarks.installation.place import InstallationPlace
from benchmarks.installation.requests import FEW, Request, requests, wide_requests
from benchmarks.installation.samples import Sample
from benchmarks.installation.served import Served
from gateway.admin.actor import SCOPES

OPERATOR, WIDE = "root@example.com", "wide@example.com"
ROUNDS = 3
QUICK = 2.0  # seconds within which a request is repeated


class _Answer(Struct, frozen=True):
    seconds: float
    cpu: float
    status: int
    sent: int
    memory: int


def walk(
    place: InstallationPlace, gateway: Served, size: int, values: dict[str, str], *, few: bool = False
) -> list[Sample]:
    """Every request, by an operator, a program, and a person who has many accounts; or those of `FEW`."""
    asked = [request for request in requests(values) if not few or request.name in FEW]
    return asyncio.run(_walk(place, gateway, size, asked))


async def _walk(place: InstallationPlace, gateway: Served, size: int, asked: list[Request]) -> list[Sample]:
    url, found = f"http://127.0.0.1:{place.console_port}", dict[Request, list[_Answer]]()
    token = told(place, "tokens", "create", "bench", "--scopes", ",".join(SCOPES))
    readers = {
        "page": await _signed_in(url, _operator_link(place)),
        "route": Visitor(url, token.split()[-1]),
        "wide": await _signed_in(url, told(place, "users", "link", WIDE)),
    }
    try:
        pairs = [(readers[request.kind], request) for request in asked]
        pairs += [(readers["wide"], request) for request in wide_requests()]
        for _ in range(ROUNDS):
            await _round(pairs, gateway, found)
    finally:
        await _close(readers.values())
    return [_sample(request, answers, size) for request, answers in found.items()]


def _operator_link(place: InstallationPlace) -> str:
    try:
        return told(place, "users", "create", OPERATOR, "--operator")
    except BenchFault:  # an installation that was kept has the user
        return told(place, "users", "link", OPERATOR)


async def _round(asked: list[tuple[Visitor, Request]], gateway: Served, found: dict[Request, list[_Answer]]) -> None:
    """Ask for each once more, unless it is slow: an equal question within a second would get the same answer."""
    for reader, request in asked:
        answers = found.setdefault(request, [])
        if not answers or answers[0].seconds < QUICK:
            gateway.forget_peak()
            meter, began = gateway.meter(), monotonic()
            status, sent = await reader.get(request.path)
            seconds = monotonic() - began
            answers.append(_Answer(seconds, meter.used(), status, sent, gateway.peak()))


def _sample(request: Request, answers: list[_Answer], size: int) -> Sample:
    return Sample(
        kind=request.kind,
        name=request.name,
        size=size,
        status=answers[-1].status,
        seconds=median(one.seconds for one in answers),
        cpu=median(one.cpu for one in answers),
        sent=answers[-1].sent,
        memory=max(one.memory for one in answers),
    )


async def _signed_in(url: str, link: str) -> Visitor:
    visitor = Visitor(url)
    await visitor.set_password(link.split()[-1])
    return visitor


async def _close(readers: Iterable[Visitor]) -> None:
    for reader in readers:
        await reader.close()
