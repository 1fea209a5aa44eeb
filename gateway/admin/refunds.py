"""Gives back what calls were charged. Amounts are nano-units."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.accounts.accounts import NAME, OPERATION, check_note
from gateway.amounts import MAX_AMOUNT, format_amount
from gateway.errors import Conflict, InvalidValue, NotFound
from gateway.ledger import Ledger
from gateway.ledger.refund import ArchivedCharge, Refunded

TRIES = 5  # lines may leave the store between two reads

#: Finds the lines of a call that have left the store; None if the database cannot tell.
FindArchived = Callable[[str, str], Awaitable[ArchivedCharge | None]]


class Refunds:
    """Refunds of calls by their request ids. Lines that have left the store are found with `find_archived`."""

    def __init__(self, ledger: Ledger, find_archived: FindArchived | None = None) -> None:
        self._ledger = ledger
        self._find_archived = find_archived

    async def refund(
        self,
        account: str,
        request_id: str,
        amount: int | None = None,
        *,
        operation: str | None = None,
        note: str = "",
    ) -> Refunded:
        """Give back `amount` of the charge, or all that is left of it; a repeated operation id changes nothing.

        NotFound: no account, or no such call in the store or the database. InvalidValue: more than is left of the
        charge. Conflict: the operation id was used for something else.
        """
        _check(amount, operation, note)
        if not NAME.fullmatch(account):
            raise NotFound(f"no account {account!r}")
        refunded = await self._ledger.refund(account, request_id, amount, operation=operation, note=note)
        if refunded.status == "unknown" and self._find_archived is not None:
            # With one operation id for all attempts, so that an attempt whose reply was lost is recognised.
            refunded = await self._refund_archived(account, request_id, amount, refunded.operation, note)
        match refunded.status:
            case "no account":
                raise NotFound(f"no account {account!r}")
            case "unknown":
                raise NotFound(
                    f"account {account!r} has no settled request {request_id!r} in the store, nor in the database"
                )
            case "moved":
                raise Conflict("the ledger is being trimmed; try again", retry_after=1)
            case "more" if refunded.amount == 0:
                raise InvalidValue(f"nothing is left to refund of request {request_id!r}")
            case "more":
                raise InvalidValue(f"only {format_amount(refunded.amount)} is left of the charge of {request_id!r}")
            case "clash":
                used = format_amount(refunded.amount)
                raise Conflict(f"operation {operation!r} was already used, for {used}", retry_after=None)
            case "cap":
                raise InvalidValue(f"the balance cannot pass {format_amount(MAX_AMOUNT)}")
        return refunded

    async def _refund_archived(
        self, account: str, request_id: str, amount: int | None, operation: str, note: str
    ) -> Refunded:
        """Refund with what the database has; again if lines leave the store meanwhile."""
        assert self._find_archived is not None
        refunded = Refunded("unknown", 0, 0, operation)
        for _ in range(TRIES):
            archived = await self._find_archived(account, request_id)
            if archived is None:
                break
            refunded = await self._ledger.refund(
                account, request_id, amount, operation=operation, note=note, archived=archived
            )
            if refunded.status != "moved":
                break
        return refunded


def _check(amount: int | None, operation: str | None, note: str) -> None:
    if amount is not None and not 0 < amount <= MAX_AMOUNT:
        raise InvalidValue(f"{format_amount(amount)} cannot be refunded")
    if operation is not None and not OPERATION.fullmatch(operation):
        raise InvalidValue("an operation id is 1 to 128 printable ASCII characters without spaces")
    check_note(note)
