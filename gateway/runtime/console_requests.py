"""What the console answers on its local socket: usage for the workers, running calls for commands."""

from __future__ import annotations

import msgspec

from gateway.admin.actor import command_line
from gateway.admin.running_calls import call_form
from gateway.admin.transactions import Transactions
from gateway.errors import NotFound
from gateway.history.sql_thread import SqlThread
from gateway.history.usage_question import ReceiptQuestion, UsageQuestion
from gateway.reports.key_usage import key_receipt, key_usage
from gateway.reports.reports import Reports
from gateway.runtime.local_socket import CANCEL, CONFIGURATION, LIST, RECEIPT, USAGE, CallsRequest
from gateway.services.services import AdminServices
from gateway.setup.effective_configuration import effective_configuration


class LocalRequests:
    """Answers by name. Questions about usage have a thread of their own, so that keys never delay the admin API."""

    def __init__(self, services: AdminServices) -> None:
        self._services = services
        self._sql = SqlThread()

    async def answer(self, name: str, payload: bytes) -> bytes:
        """The answer as JSON, about a receipt as msgpack, about the configuration as TOML; a GatewayError."""
        if name == USAGE:
            question = msgspec.msgpack.decode(payload, type=UsageQuestion)
            reports = Reports(Transactions(await self._services.database(), self._sql))
            return msgspec.json.encode(await key_usage(reports, question))
        if name == RECEIPT:
            asked = msgspec.msgpack.decode(payload, type=ReceiptQuestion)
            transactions = Transactions(await self._services.database(), self._sql)
            return msgspec.msgpack.encode(await key_receipt(transactions, asked))
        if name == CONFIGURATION:
            return effective_configuration(self._services.settings).encode()
        if name not in (LIST, CANCEL):
            raise NotFound(f"no request {name!r}")
        request = msgspec.msgpack.decode(payload, type=CallsRequest)
        actor, calls = command_line(request.login), self._services.running_calls
        if name == CANCEL:
            return msgspec.json.encode(call_form(await calls.cancel(actor, request.request_id)))
        found = await calls.list(actor, account=request.account, limit=request.limit)
        return msgspec.json.encode(
            {
                "data": [call_form(one) for one in found.calls],
                "silent_workers": found.silent,
                "silent_machines": found.silent_machines,
            }
        )

    def close(self) -> None:
        """End the thread."""
        self._sql.close()
