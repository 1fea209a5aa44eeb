"""How an error is written for a client: status, headers and body, in the shape of the client's API."""

from __future__ import annotations

from gateway.errors.base import GatewayError


class ErrorForm:
    """OpenAI's shape, and the base of the others."""

    def status(self, error: GatewayError) -> int:
        """The HTTP status of the answer."""
        return error.status

    def headers(self, error: GatewayError) -> dict[str, str]:
        """The response headers of the error."""
        return error.headers()

    def adapt(self, headers: dict[str, str]) -> None:
        """Change the headers of an answer, or of an error, into those of the client's API."""

    def body(self, error: GatewayError, request_id: str) -> bytes:
        """The JSON error document, UTF-8."""
        return error.body()


OPENAI = ErrorForm()
