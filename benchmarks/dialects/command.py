"""`python -m benchmarks dialects`: instructions of a chunk and of a request for each pair of dialects."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import click
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.checkout import HERE, Checkout
from benchmarks.dialects.requests import http_request
from benchmarks.dialects.upstream import dialect_upstream
from benchmarks.fault import BenchFault
from benchmarks.instructions.counting import FEW, MANY, Counter, Window, counting, difference
from benchmarks.probe import Probed
from benchmarks.start import prepare

CLIENTS = ("chat", "responses", "messages", "gemini")
UPSTREAMS = ("chat", "responses", "messages", "gemini")
#: A Responses upstream gets the requests of the other clients as chat completions.
CELLS = tuple((client, api) for client in CLIENTS for api in UPSTREAMS if api != "responses" or client == "responses")
REQUESTS = 20
WARM_UP = 6
SAME_MOST, OTHER_MOST, TOOLS_MOST = 1.1, 1.4, 1.5  # of chat over chat

PROVIDERS = """
[providers.chat]
plugin = "openai"
base_url = "{url}/v1"

[providers.responses]
plugin = "openai"
base_url = "{url}/v1"
responses = true

[providers.messages]
plugin = "anthropic"
base_url = "{url}"
api_key = "env:BENCH_UPSTREAM_KEY"

[providers.gemini]
plugin = "gemini"
base_url = "{url}/v1beta"
api_key = "env:BENCH_UPSTREAM_KEY"
"""
MODEL = """
[models."{api}-{name}"]
provider = "{api}"
model = "{upstream}"
context_window = 1_000_000
max_output_tokens = 4096
price = {{ input = 0.25, cached_input = 0.025, output = 2.0 }}
"""
#: The public models of each upstream, and what they are called there.
MODELS = {"few": f"mock-{FEW}", "many": f"mock-{MANY}", "whole": "mock"}


class Cell(Struct, frozen=True):
    """Instructions of the worker."""

    chunk: float
    request: float  # whole, with a short prompt
    tools: float  # whole, with 40 KB of tools


@click.command()
@click.argument("tree", default=HERE, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1), help="How often each is counted.")
def dialects(*, tree: Path, repeats: int) -> None:
    """Count the instructions of a chunk and of a request in each dialect, under callgrind; 2 minutes a repeat.

    All pairs are counted in turn, and the figures are medians: what the worker does once in some seconds changes a
    single count of 200 chunks by up to a third.
    """
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 140)
    try:
        prepare()
        cells = _counted(Checkout(tree.resolve()), repeats, messages)
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    tables.print(table_of(cells))
    missed = [text for pair, cell in cells.items() for text in _missed(pair, cell, cells["chat", "chat"])]
    for text in missed:
        tables.print(text)
    sys.exit(1 if missed else 0)


def _counted(checkout: Checkout, repeats: int, messages: Console) -> dict[tuple[str, str], Cell]:
    with dialect_upstream() as upstream:
        url = f"http://127.0.0.1:{upstream.port}"
        models = [
            MODEL.format(api=api, name=name, upstream=shape) for api in UPSTREAMS for name, shape in MODELS.items()
        ]
        further = PROVIDERS.format(url=url) + "".join(models)
        with counting(checkout, further=further) as (worker, folder):
            worker.caller.told = upstream.told
            messages.print("warming up")
            _warm_up(worker)
            counter = Counter(worker, folder)
            found: dict[tuple[str, str], list[Cell]] = {pair: [] for pair in CELLS}
            for number in range(1, repeats + 1):
                messages.print(f"counting, {number} of {repeats}")
                idle = counter.idle()
                for client, api in CELLS:
                    found[client, api].append(_cell(counter, _requests(worker, client, api), idle))
            return {pair: _median(cells) for pair, cells in found.items()}


def _requests(worker: Probed, client: str, api: str) -> dict[str, bytes]:
    headers = worker.server.headers
    made = {
        name: http_request(client, f"{api}-{name}", stream=name != "whole", tools=False, headers=headers)
        for name in MODELS
    }
    return {**made, "tools": http_request(client, f"{api}-whole", stream=False, tools=True, headers=headers)}


def _warm_up(worker: Probed) -> None:
    for is_counted in (False, True):
        if is_counted:
            worker.commands.send("begin")
        for client, api in CELLS:
            requests = _requests(worker, client, api)
            for name in ("whole", "tools", "few"):
                for _ in range(WARM_UP):
                    worker.call(requests[name])


def _cell(counter: Counter, requests: dict[str, bytes], idle: Window) -> Cell:
    few, many = counter.asked(requests["few"]), counter.asked(requests["many"])
    chunk = sum(difference(many, few, MANY - FEW, idle=idle).values())
    return Cell(chunk, *(_of_request(counter, requests[name], idle) for name in ("whole", "tools")))


def _of_request(counter: Counter, request: bytes, idle: Window) -> float:
    once, often = counter.asked(request), counter.asked(request, 1 + REQUESTS)
    return sum(difference(often, once, REQUESTS, idle=idle).values())


def _median(cells: list[Cell]) -> Cell:
    return Cell(*(statistics.median(getattr(cell, name) for cell in cells) for name in Cell.__struct_fields__))


def table_of(cells: dict[tuple[str, str], Cell]) -> Table:
    """A row for each pair of dialects, with the ratios to chat over chat."""
    table = Table(title="instructions of the worker, and as a multiple of chat over chat", title_justify="left")
    table.add_column("client")
    table.add_column("upstream")
    for title in ("chunk", "", "request", "", "with 40 KB of tools", ""):
        table.add_column(title, justify="right")
    chat = cells["chat", "chat"]
    for (client, api), cell in cells.items():
        figures = []
        for name in Cell.__struct_fields__:
            value, base = getattr(cell, name), getattr(chat, name)
            figures += [f"{value:,.0f}", f"{value / base:.2f}"]
        table.add_row(client, api, *figures)
    return table


def _missed(pair: tuple[str, str], cell: Cell, chat: Cell) -> list[str]:
    """The bounds of performance that a cell does not keep."""
    client, api = pair
    bounds = {"chunk": SAME_MOST if client == api else OTHER_MOST, "tools": TOOLS_MOST}
    return [
        f"{client} over {api}: {name} is {ratio:.2f} times chat's, and not {most} at most"
        for name, most in bounds.items()
        if (ratio := getattr(cell, name) / getattr(chat, name)) > most
    ]
