"""The requests on the console's local socket, by name."""

from __future__ import annotations

from msgspec import Struct

USAGE = "usage"  # with a `UsageQuestion`
RECEIPT = "receipt"  # with a `ReceiptQuestion`
LIST, CANCEL = "list calls", "cancel call"  # with a `CallsRequest`


class CallsRequest(Struct, frozen=True, array_like=True):
    """A command's list of running calls, or the cancellation of one; `login` is who runs the command."""

    login: str
    account: str = ""
    limit: int = 1000
    request_id: str = ""
