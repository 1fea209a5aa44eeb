"""Base of the providers that send a fixed credential to one base URL.

A subclass makes the headers of the credential (`credentials`), and calls `post_url` for each answer. Sharp edge:
`start` makes `headers`, so no request can be sent before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

from msgspec import Struct

from gateway import Answer, Multipart, Provider, Secret, SecretHeaders, Target, Upstream, reveal_headers
from gateway.plugins.upstream_errors import raise_for_status

JSON_HEADERS: Mapping[str, str] = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class HttpOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys under [providers.NAME] that every subclass has."""

    api_key: Secret | None = None  # none for servers that want none
    headers: SecretHeaders = {}  # sent with every request; they replace the provider's own


class HttpProvider(Provider):
    """One server and one credential."""

    #: Headers of every request, which `credentials` and the option `headers` can replace.
    common_headers: ClassVar[Mapping[str, str]] = JSON_HEADERS

    options: HttpOptions

    def __init__(self, options: Any, upstream: Upstream, *, base_url: str = "") -> None:
        """`base_url` replaces the option of that name; ValueError if it is not an address."""
        super().__init__(options, upstream)
        self.base_url, host = checked_base_url(base_url or options.base_url)  # without a final slash
        self.headers: dict[str, str] = {}
        self.hidden: tuple[str, ...] = (host,)  # texts that no error may show

    def credentials(self) -> dict[str, str]:
        """The headers that carry the credential, by default a bearer token; each secret is read by `reveal`."""
        return {} if self.options.api_key is None else {"Authorization": f"Bearer {self.reveal(self.options.api_key)}"}

    def reveal(self, secret: Secret) -> str:
        """The text of a secret, which errors do not show from now on."""
        text = secret.reveal()
        self.hidden = (*self.hidden, text)
        return text

    async def start(self) -> None:
        """Read the secrets once, perhaps from files."""
        own = reveal_headers(self.options.headers)
        references = (name for name, value in self.options.headers.items() if isinstance(value, Secret))
        self.hidden = (*self.hidden, *(own[name] for name in references))
        self.headers = {**self.common_headers, **self.credentials(), **own}

    async def post_url(
        self,
        url: str,
        body: bytes | Multipart | AsyncIterator[bytes],
        target: Target,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer when its head has arrived; the typed error for a status other than 200 to 299.

        `headers` are sent instead of `self.headers`.
        """
        answer = await self.upstream.send(
            "POST", url, headers=self.headers if headers is None else headers, body=body, timeouts=target.timeouts
        )
        if 200 <= answer.status < 300:
            return answer
        try:
            await self.raise_for_status(answer)
        except BaseException:
            answer.close()
            raise
        return answer

    async def raise_for_status(self, answer: Answer) -> None:
        """Raise the typed error for a status other than 200 to 299."""
        await raise_for_status(answer, self.hidden)


def checked_base_url(base_url: str, *, option: str = "base_url") -> tuple[str, str]:
    """The address without a final slash, and its host and port, which no error may show; ValueError if invalid."""
    address = urlsplit(base_url)
    if address.scheme not in {"http", "https"} or not address.hostname or address.username is not None:
        raise ValueError(f"{option} must be an http or https address without credentials")
    return base_url.rstrip("/"), address.netloc
