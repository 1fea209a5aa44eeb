"""Sections of `docs/clients.md` from `gateway.console.clients`; `python -m tests.clients_page` writes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from gateway.console.clients import CLIENTS, Client, Place

PAGE = Path(__file__).parent.parent / "docs" / "clients.md"
BEGIN = "<!-- from gateway/console/clients.py, by python -m tests.clients_page -->\n"
END = "<!-- end -->\n"
PLACE = Place("http://127.0.0.1:8080/v1", "sk-…", "fake-chat")


def generated() -> str:
    """The sections of all clients."""
    return "\n".join(line for client in CLIENTS for line in _section(client))


def with_clients(page: str) -> str:
    """The page with the sections between its two marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{generated()}\n{END}{rest.partition(END)[2]}"


def _section(client: Client) -> Iterator[str]:
    yield from (f"### {client.name}", "", f"It calls `{client.api}`.", "")
    if client.settings:
        yield from ("| field | value |", "|---|---|")
        yield from (f"| {name} | `{value}` |" for name, value in client.fields(PLACE).items())
        yield ""
    if client.text:
        kind = client.file.rpartition(".")[2]
        language = {"py": "python", "mjs": "js"}.get(kind, kind)
        yield from (f"`{client.file}`:", "", f"```{language}", client.content(PLACE).rstrip(), "```", "")
    if commands := client.commands(PLACE):
        yield from ("```sh", commands, "```", "")
    if client.note:
        yield from (client.note, "")


if __name__ == "__main__":
    PAGE.write_text(with_clients(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name}: {len(CLIENTS)} clients\n")
