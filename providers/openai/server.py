"""One server that speaks OpenAI's dialect, and one credential: options, headers, and the way to each of its paths.

The endpoints are classes of their own beside it (`chat`, `embeddings`, `images`, …); each asks `post` for an answer and
reads it. `OpenAIProvider` and `AzureProvider` say where the server is and how it is shown the key.
Sharp edge: the key is read in `start`, so nothing can be sent before.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Raw, field, json, structs

from gateway import Answer, Multipart, Target, Upstream, dialect_headers

from .._shared.http_provider import HttpOptions, HttpProvider
from .cache_marks import Marks
from .presets import OPENAI, PRESETS, Quirks, field_value

OFFICIAL_HOST = "api.openai.com"


class SharedOptions(HttpOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys under [providers.NAME] that every server of the dialect knows."""

    no_stream_options: bool | None = None  # for servers that refuse the field; usage is then estimated
    stream_end: Literal["auto", "done", "finish"] = "auto"  # what proves a stream complete
    send_cache_key: bool | None = None  # whether calls of a session get a `prompt_cache_key`, or that header
    # the header that names the session of a chat call in place of `prompt_cache_key`; "": none; unset: the preset's
    session_header: Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z0-9_-]*\Z")] | None = None
    cache_marks: Marks | None = None  # in whose words it takes marks for its prompt cache; unset: as the preset says
    # request fields that the server spells otherwise: seed = "random_seed"
    rename: dict[str, str] = field(default_factory=dict)
    # efforts that the server calls otherwise: minimal = "low"
    reasoning_effort: dict[str, str] = field(default_factory=dict)
    # fields unknown to the gateway that are forwarded, beside those of the preset; "*": all
    forward_params: tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...] = ()
    responses: bool | None = None  # whether Responses requests are forwarded as they are; unset: as the preset says
    responses_fields: tuple[str, ...] | None = None  # of such requests, beside the usual ones, in place of the table's
    responses_tools: tuple[str, ...] | None = None  # types of tools that the server runs, in place of the table's
    completions: bool | None = None  # whether completions are forwarded as they are; unset: as the preset says
    translations: bool | None = None  # whether it has `/audio/translations`; unset: as the preset says
    image_response_format: Literal["auto", "send", "omit"] = "auto"  # whether images' `response_format` is sent


def quirks_of(options: SharedOptions, preset: str | None = None) -> Quirks:
    """The preset's quirks, with what the options say in their place."""
    quirks = PRESETS[preset] if preset else Quirks()
    rename = {**quirks.rename, **options.rename}
    instead = dict(quirks.instead)
    if options.reasoning_effort:
        ours = {effort: field_value("reasoning_effort", theirs) for effort, theirs in options.reasoning_effort.items()}
        instead["reasoning_effort"] = {**instead.get("reasoning_effort", {}), **ours}
    withheld = quirks.no_stream_options if options.no_stream_options is None else options.no_stream_options
    return structs.replace(quirks, rename=rename, instead=instead, no_stream_options=withheld)


class OpenAIServer(HttpProvider):
    """What all endpoints of the dialect share."""

    options: SharedOptions
    quirks = Quirks()

    def __init__(self, options: SharedOptions, upstream: Upstream) -> None:
        self.options = options  # `configured_url` reads them
        super().__init__(options, upstream, base_url=self.configured_url)
        self.forwarded_fields = self.quirks.own.union(options.forward_params)
        self.official = urlsplit(self.base_url).hostname == OFFICIAL_HOST
        self.session_header = self._session_header()
        if self.official:
            self.quirks = self.quirks.official
        self.marks: Marks = self.quirks.cache_marks if options.cache_marks is None else options.cache_marks

    @property
    def configured_url(self) -> str:
        """Where the server is, as the options say it."""
        return OPENAI

    def url(self, path: str, target: Target) -> str:
        """The address of an endpoint."""
        return f"{self.base_url}{path}"

    def _session_header(self) -> str:
        """The header of the options, or that of the preset, which no other server is sent."""
        if self.options.session_header is not None:
            return self.options.session_header
        own, host = urlsplit(self.quirks.base_url).hostname, urlsplit(self.base_url).hostname
        is_own = own is not None and host is not None and (host == own or host.endswith(f".{own}"))
        return self.quirks.session_header if is_own else ""

    def post(
        self, path: str, body: bytes | Multipart, target: Target, *, accept: str = "", session: str = ""
    ) -> Awaitable[Answer]:
        """The answer to JSON or a form, once its headers are there; the typed error for one that is no success."""
        headers = {**self.headers, "Accept": accept} if accept else self.headers
        if session:
            headers = {**headers, self.session_header: session}
        beta = dialect_headers()
        if beta:
            headers = {**headers, **beta}
        return self.post_url(self.url(path, target), body, target, headers=headers)

    async def post_whole(self, path: str, body: bytes | Multipart, target: Target) -> bytes:
        """The whole answer to JSON or a form."""
        async with await self.post(path, body, target) as answer:
            return await answer.read()


def fields_body(fields: dict[str, Raw], target: Target, options: SharedOptions) -> bytes:
    """The JSON of the fields for the target's model, each by the server's name for it."""
    fields["model"] = Raw(json.encode(target.model))
    return json.encode({options.rename.get(name, name): value for name, value in fields.items()})
