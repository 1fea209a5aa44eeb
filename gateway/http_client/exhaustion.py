"""Failures to connect that are this machine's own: no descriptor or no memory is left.

They say nothing about the upstream, so they are 503 of the gateway: the circuits do not count them, and no other target
is tried, because it would fail in the same way.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from gateway.errors import Overloaded

OWN: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


def own_failure(error: BaseException) -> Overloaded | None:
    """The error for a connection that failed for want of local resources; None if the cause is elsewhere."""
    if isinstance(error, socket.gaierror):
        # A resolver that cannot open its files or a socket reports only that the name is unknown.
        missing = _missing()
    else:
        missing = error.errno if isinstance(error, OSError) and error.errno in OWN else None
    return None if missing is None else Overloaded(detail=f"no connection to an upstream: {os.strerror(missing)}")


def _missing() -> int | None:
    """The error that the system gives for one more descriptor, if it gives one."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno if error.errno in OWN else None
    return None
