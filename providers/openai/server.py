"""One OpenAI-compatible server and one credential: its options, its headers, and the way to each of its paths.

The endpoints are classes of their own beside it (`embeddings`, `images`); each asks `post` for an answer and reads it.
Sharp edge: the key is read in `start`, so nothing can be sent before.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from gateway import Answer, Multipart, Provider, Secret, Target, Upstream, dialect_headers
from gateway.upstream_errors import raise_for_status

OFFICIAL_HOST = "api.openai.com"


class OpenAIServer(Provider):
    """What all endpoints of the dialect share."""

    class Options(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        base_url: str = "https://api.openai.com/v1"
        api_key: Secret | None = None  # none for servers that want none
        headers: dict[str, str] = {}  # sent with every request
        organization: str = ""
        project: str = ""
        no_stream_options: bool = False  # for servers that refuse the field; usage is then estimated
        stream_end: Literal["auto", "done", "finish"] = "auto"  # what proves a stream complete
        rename: dict[str, str] = {}  # request fields that the server spells otherwise: seed = "random_seed"
        reasoning_effort: dict[str, str] = {}  # efforts that the server calls otherwise: minimal = "low"
        image_response_format: Literal["auto", "send", "omit"] = "auto"  # whether images' `response_format` is sent

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        address = urlsplit(options.base_url)
        if address.scheme not in {"http", "https"} or not address.hostname or address.username is not None:
            raise ValueError("base_url must be an http or https address without credentials")
        self.base_url = options.base_url.rstrip("/")
        self.official = address.hostname == OFFICIAL_HOST
        self.headers: dict[str, str] = {}
        self.hidden: tuple[str, ...] = (address.netloc,)  # never to appear in an error

    async def start(self) -> None:
        """Read the key, once: it may come from a file."""
        options = self.options
        self.headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if options.organization:
            self.headers["OpenAI-Organization"] = options.organization
        if options.project:
            self.headers["OpenAI-Project"] = options.project
        if options.api_key is not None:
            key = options.api_key.reveal()
            self.headers["Authorization"] = f"Bearer {key}"
            self.hidden = (*self.hidden, key)
        self.headers.update(options.headers)

    async def post(self, path: str, body: bytes | Multipart, target: Target, *, accept: str = "") -> Answer:
        """The answer to JSON or a form, once its headers are there; the typed error for one that is no success."""
        headers = {**self.headers, "Accept": accept} if accept else self.headers
        beta = dialect_headers()
        if beta:
            headers = {**headers, **beta}
        answer = await self.upstream.send(
            "POST", f"{self.base_url}{path}", headers=headers, body=body, timeouts=target.timeouts
        )
        if answer.status == 200:
            return answer
        try:
            await raise_for_status(answer, self.hidden)
        except BaseException:
            answer.close()
            raise
        return answer

    async def post_whole(self, path: str, body: bytes | Multipart, target: Target) -> bytes:
        """The whole answer to JSON or a form."""
        async with await self.post(path, body, target) as answer:
            return await answer.read()
