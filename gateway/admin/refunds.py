"""Gives back what calls were charged. Amounts are nano-units."""

from __future__ import annotations

from gateway.accounts.accounts import MAX_NOTE, NAME, OPERATION
from gateway.amounts import MAX_AMOUNT, format_amount
from gateway.errors import Conflict, InvalidValue, NotFound
from gateway.ledger import Ledger
from gateway.ledger.refund import Refunded


class Refunds:
    """Refunds of calls by their request ids."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

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

        NotFound: no account, or no such call in the store. InvalidValue: more than is left of the charge. Conflict: the
        operation id was used for something else.
        """
        _check(amount, operation, note)
        if not NAME.fullmatch(account):
            raise NotFound(f"no account {account!r}")
        refunded = await self._ledger.refund(account, request_id, amount, operation=operation, note=note)
        match refunded.status:
            case "no account":
                raise NotFound(f"no account {account!r}")
            case "unknown":
                raise NotFound(
                    f"account {account!r} has no settled request {request_id!r} in the store; a line that has left "
                    "it cannot be refunded"
                )
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


def _check(amount: int | None, operation: str | None, note: str) -> None:
    if amount is not None and not 0 < amount <= MAX_AMOUNT:
        raise InvalidValue(f"{format_amount(amount)} cannot be refunded")
    if operation is not None and not OPERATION.fullmatch(operation):
        raise InvalidValue("an operation id is 1 to 128 printable ASCII characters without spaces")
    if len(note) > MAX_NOTE or not note.isprintable():
        raise InvalidValue(f"a note is at most {MAX_NOTE} printable characters")
