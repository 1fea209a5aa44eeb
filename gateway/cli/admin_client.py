"""The client of the admin API: requests of one command, and what goes wrong as one line for the operator."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from gateway.cli.admin_requests import AdminReply, AdminRequests
from gateway.cli.output import note
from gateway.cli.root import Failure
from gateway.cli.server_option import PREFIX, Server
from gateway.config.loopback import is_loopback
from gateway.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Upstream

T = TypeVar("T")
TIMEOUTS = Timeouts(connect=10.0, first_byte=330.0, idle=60.0, total=600.0)  # an audit may take five minutes
NO_ROUTE = ("unknown_url", "method_not_allowed")
UNKNOWN_FIELD = "unknown_parameter"


class ServerError(Failure):
    """An error that the server answered, with its status, and the document of the answer."""

    def __init__(self, message: str, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.document = document


class AdminClient(AdminRequests):
    """Requests with one token to one server. A request is never sent twice."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._upstream = Upstream(tls=_tls(server))
        parts = urlsplit(server.url)
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            note(f"{server.url} is not encrypted: others on the way can read the token")

    async def close(self) -> None:
        """Close the connections."""
        await self._upstream.close()

    async def send(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        operation: str = "",
    ) -> AdminReply:
        """The answer; Failure for every other outcome, ServerError if the server says why."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        where = (
            PREFIX + "".join(f"/{quote(part, safe='@')}" for part in path) + (f"?{urlencode(given)}" if given else "")
        )
        status, headers, content = await self._exchange(method, where, body, operation)
        document = _decoded(content)
        if status < 300 and document is not None:
            if headers.get("x-gateway-unconfirmed") == "true":
                note("done, but the store could not confirm that it is on its disk; look whether it holds")
            return AdminReply(document, headers)
        raise await self._failure(status, document)

    async def _exchange(
        self, method: str, where: str, body: Mapping[str, Any] | None, operation: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"Authorization": f"Bearer {self._server.token}", "Accept": "application/json"}
        content = None
        if body is not None:
            content, headers["Content-Type"] = msgspec.json.encode(body), "application/json"
        if operation:
            headers["Idempotency-Key"] = operation
        url = self._server.url
        try:
            async with await self._upstream.send(
                method, url + where, headers=headers, body=content, timeouts=TIMEOUTS
            ) as answer:
                found = await answer.read()
                return answer.status, {name.lower(): value for name, value in answer.headers.items()}, found
        except UpstreamUnreachable as error:
            hint = "; name its CA with --ca" if "certificate verify failed" in (error.detail or "") else ""
            raise Failure(f"the server {url} cannot be reached: {error.detail or error.message}{hint}") from None
        except UpstreamTimeout as error:
            raise Failure(f"the server {url} does not answer: {error.detail}{_unsure(method, operation)}") from None
        except UpstreamError as error:
            cause = error.detail or error.message
            raise Failure(f"the server {url} cut the answer: {cause}{_unsure(method, operation)}") from None

    async def _failure(self, status: int, document: Any) -> Failure:
        url, error = self._server.url, _error_of(document)
        if error is None:
            return Failure(f"{url} is not the admin API of a gateway: it answers {status}")
        message, code = error
        if status == 401:
            return Failure(f"the server {url} refused the token: {message}")
        if code in NO_ROUTE or code == UNKNOWN_FIELD:
            version = await self._version()
            return Failure(f"the server {url} (version {version}) does not know this command: {message}")
        return ServerError(message, status, document)

    async def _version(self) -> str:
        """The version of the server; `unknown` if it does not say."""
        _, _, content = await self._exchange("GET", f"{PREFIX}/token", None, "")
        document = _decoded(content)
        return str(document.get("version", "unknown")) if isinstance(document, dict) else "unknown"


def _tls(server: Server) -> ssl.SSLContext | None:
    if server.ca is None and server.client_cert is None:
        return None
    try:
        context = ssl.create_default_context(cafile=str(server.ca) if server.ca is not None else None)
    except ssl.SSLError:
        raise Failure(f"{server.ca} has no certificates in PEM form") from None
    if server.client_cert is not None:
        try:
            context.load_cert_chain(server.client_cert)
        except ssl.SSLError:
            raise Failure(f"{server.client_cert} has no certificate with its key in PEM form") from None
    return context


def _decoded(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _error_of(document: Any) -> tuple[str, str] | None:
    """Message and code of an error body."""
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    return error["message"], str(error.get("code"))


def _unsure(method: str, operation: str) -> str:
    if operation:
        return f"; it may be done: repeat it with --id {operation}, which moves the money only once"
    return "" if method == "GET" else "; it may be done: look before you repeat it"


def over_server(server: Server, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Do `work` with a client."""

    async def with_client() -> T:
        client = AdminClient(server)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(with_client())
