"""aiohttp's errors as the gateway's own.

aiohttp's messages contain the proxy, the URL and parts of the answer, so they are not used: `detail` has the kind of an
error and the system's text for it.
"""

from __future__ import annotations

import os
import socket
import ssl
from typing import Final

import aiohttp
from aiohttp.http import HttpProcessingError

from gateway.errors import UpstreamAuthError, UpstreamInvalidResponse, UpstreamTimeout, UpstreamUnreachable
from gateway.http_client.connect import own_failure

PROXY_AUTHENTICATION_REQUIRED: Final = 407


class ConnectionLost(aiohttp.ClientConnectionError):
    """A connection that ended before the answer. aiohttp does not know this class, so it repeats no request."""


def before_answer(error: Exception) -> Exception:
    """The error to raise for a failure before the answer's headers."""
    if type(error) is aiohttp.ClientConnectionError and isinstance(error.__cause__, Exception):
        return error.__cause__  # the source of a streamed request body failed, not the upstream
    if isinstance(error, aiohttp.ClientHttpProxyError):
        if error.status == PROXY_AUTHENTICATION_REQUIRED:
            return refused()
        return UpstreamUnreachable(detail=f"the proxy answered CONNECT with {error.status}")
    if isinstance(error, TimeoutError):
        return UpstreamTimeout(detail="no connection through the proxy in time").began_at("connection")
    if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
        return UpstreamInvalidResponse(detail=describe(error))
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if (own := own_failure(cause)) is not None:
        return own
    lost = UpstreamUnreachable(detail=describe(error))
    return lost.began_at("answer") if isinstance(error, ConnectionLost) else lost


def refused() -> UpstreamAuthError:
    """The error for status 407; of the way, so it says nothing of the credential at the upstream."""
    return UpstreamAuthError(
        "The gateway's credential was refused on the way to the model provider",
        detail="the proxy refused the gateway's credentials (407)",
    ).began_at("connection")


def describe(error: Exception) -> str:
    """The kind of an error and the system's text for it, without an address."""
    if isinstance(error, ConnectionLost):
        return str(error)
    if not isinstance(error, aiohttp.ClientConnectorError):
        return _with_words(type(error).__name__, error)
    if isinstance(error.os_error, ssl.SSLError):
        return _with_words("no TLS with the proxy or the upstream", error.os_error)
    return _with_words("no connection to the proxy", error.os_error)  # names of upstreams are looked up by the proxy


def _with_words(what: str, error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{what}: {error.reason}"
    if isinstance(error, socket.gaierror):
        return f"{what}: {error.strerror}"
    if isinstance(error, OSError) and error.errno:
        return f"{what}: {os.strerror(error.errno)}"
    return what
