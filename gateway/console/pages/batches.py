"""`/accounts/{account}/batches` and `/site/batches`: batches with their progress, their files, and their end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, date, datetime
from typing import Any

from gateway.admin.batches import FoundBatch, may_cancel, may_read_files
from gateway.admin.key_lookups import key_names
from gateway.admin.pages import page_of
from gateway.batches.all_batches import Position
from gateway.batches.records import ID
from gateway.console.fields import whole_number
from gateway.console.replies import PAGE, Download, Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import Forbidden, NotFound
from gateway.files.chosen import chosen_storage
from gateway.files.storage import FileContent, pieces_of
from gateway.web.request_limits import CANCELLATIONS

OF_SITE = "/site/batches"
PATH = "/accounts/{account}/batches"
HELP = "operations/batches"
TONES = {"completed": "good", "failed": "bad", "expired": "bad", "cancelling": "warn", "cancelled": "warn"}
#: The files of a batch by their names in the address, each with its field and its name on the page.
PARTS = {
    "input": ("input_file_id", "Input"),
    "output": ("output_file_id", "Results"),
    "errors": ("error_file_id", "Errors"),
}


def is_open(visit: Visit) -> bool:
    """Whether batches run here."""
    return visit.settings.batches.enabled


async def batches(visit: Visit, account: str) -> Reply:
    return View("batches.html", "Batches", await _listed(visit, account))


async def all_batches(visit: Visit) -> Reply:
    return View("batches.html", "All batches", await _listed(visit, ""))


async def _listed(visit: Visit, account: str) -> dict[str, Any]:
    before = _position(visit.query("before"))
    found = await visit.store.batches.list(visit.actor, account=account, before=before, limit=PAGE + 1)
    shown, last = page_of(found, PAGE)
    return {
        "account": account,
        "base": PATH.format(account=account) if account else OF_SITE,
        "rows": [(one.json_form(), TONES.get(one.status, "")) for one in shown],
        "names": await key_names(visit.store.store, sorted({one.batch.key for one in shown})),
        "next": f"{last.position[0]}.{last.position[1]}" if last else "",
        "is_first": before is None,
        "runs": any(not one.has_ended for one in shown),
    }


async def show(visit: Visit, account: str, batch: str) -> Reply:
    found = await visit.store.batches.show(visit.actor, batch, account=account)
    files = {name: await _file(visit, found, name) for name in PARTS}
    key = await visit.store.keys.find(found.batch.key)
    values = {
        "account": account,
        "base": f"{PATH.format(account=account)}/{found.batch.id}",
        "batch": found.json_form(),
        "tone": TONES.get(found.status, ""),
        "runs": not found.has_ended,
        "key": key,
        "files": [(name, PARTS[name][1], file) for name, file in files.items() if file is not None],
        "calls": {
            "session": found.batch.id,
            "from": f"{_day(found.batch.created_at)}",
            "to": f"{_day(found.batch.expires_at)}",
        },
        "may_cancel": not found.has_ended and found.cancelled_at is None and may_cancel(visit.actor, found.batch),
        "may_read": may_read_files(visit.actor, found.batch),
    }
    return View("batch.html", "Batch", values)


async def cancel(visit: Visit, account: str, batch: str) -> Reply:
    await visit.store.batches.cancel(visit.actor, batch, account=account)
    visit.note("The batch is cancelled; the lines that run are completed and charged.")
    return Redirect(f"{PATH.format(account=account)}/{batch}")


async def download(visit: Visit, account: str, batch: str, part: str) -> Reply:
    found = await visit.store.batches.show(visit.actor, batch, account=account)
    if not may_read_files(visit.actor, found.batch):
        raise Forbidden("The files of a batch are for owners of its account, and for who made it")
    file = await _file(visit, found, part)
    if file is None:
        raise NotFound("There is no such file")
    storage = chosen_storage(visit.settings)
    content = await storage.open(file.id) if file.place == await storage.place() else None
    if content is None:
        raise NotFound("The content of this file is not on this machine")
    return Download(f"{found.batch.id}_{part}.jsonl", "application/octet-stream", _pieces(content))


async def _file(visit: Visit, found: FoundBatch, part: str) -> Any:
    file_id = getattr(found.batch, PARTS[part][0]) if part in PARTS else None
    return await visit.store.batches.file(visit.actor, found, file_id) if file_id else None


async def _pieces(content: FileContent) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(pieces_of(content)) as pieces:
            async for piece in pieces:
                yield piece
    finally:
        await content.close()


def _day(seconds: int) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()


def _position(text: str) -> Position | None:
    at, _, batch_id = text.partition(".")
    number = whole_number(at)
    return None if number is None or not ID.fullmatch(batch_id) else (number, batch_id)


ROUTES = (
    PageRoute(method="GET", path=PATH, audience="member", function=batches, is_open=is_open, help=HELP, menu="Batches"),
    PageRoute(method="GET", path=f"{PATH}/{{batch}}", audience="member", function=show, is_open=is_open, help=HELP),
    PageRoute(
        method="POST",
        path=f"{PATH}/{{batch}}/cancel",
        audience="member",
        function=cancel,
        is_open=is_open,
        limit=CANCELLATIONS,
    ),
    PageRoute(
        method="GET",
        path=f"{PATH}/{{batch}}/files/{{part}}",
        audience="member",
        function=download,
        is_open=is_open,
        waits=True,
    ),
)
FOR_SITE = (
    PageRoute(
        method="GET",
        path=OF_SITE,
        audience="viewer",
        function=all_batches,
        is_open=is_open,
        help=HELP,
        menu="All batches",
        group="Traffic",
    ),
)
