"""Workers with running calls that a test makes up."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.admin.running_calls import FoundCalls
from gateway.inference.running_calls import CallQuery, RunningCall


class MadeUpWorkers:
    """Its calls run until they are cancelled."""

    def __init__(self) -> None:
        self.calls: dict[str, RunningCall] = {}
        self.silent = 0  # workers that do not answer
        self.silent_machines = 0

    def start(self, request_id: str, account: str, machine: str = "one:8080") -> str:
        """A call of the account; returns its id."""
        at = 1_000_000 * len(self.calls)
        self.calls[request_id] = RunningCall(
            at, request_id, account, "key_1", "fake-chat", "", "chat", True, 1.0, 5, 500, 1000, machine
        )
        return request_id

    async def list(self, query: CallQuery) -> FoundCalls:
        found = [call for call in self.calls.values() if not query.accounts or call.account in query.accounts]
        found = [call for call in found if query.after is None or call.position > query.after]
        return FoundCalls(found[: query.limit], self.silent, self.silent_machines)

    async def cancel(self, request_id: str, accounts: Sequence[str]) -> FoundCalls:
        call = self.calls.get(request_id)
        if call is None or (accounts and call.account not in accounts):
            return FoundCalls([], self.silent, self.silent_machines)
        return FoundCalls([self.calls.pop(request_id)], self.silent)
