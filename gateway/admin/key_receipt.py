"""The settled call of a key, for its receipt after the store has forgotten the call."""

from __future__ import annotations

from gateway.admin.transactions import Transactions
from gateway.history.reader import read_request
from gateway.history.usage_question import ReceiptQuestion, SettledCall

KINDS = frozenset({"use", "reclaim", "adj"})  # of the lines that make up a charge


async def key_receipt(transactions: Transactions, question: ReceiptQuestion) -> SettledCall | None:
    """The call in the database; None if there is none, or if another key made it."""
    found = await transactions.read(read_request, question.request_id)
    lines = [line for line in found if line.account == question.account and line.kind in KINDS]
    if not lines or lines[-1].meta.get("key") != question.key:
        return None
    return SettledCall(lines[-1], -sum(line.amount for line in lines))
