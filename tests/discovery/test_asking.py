"""A question for a list is bounded, whatever a server or a plugin does, and its error has nothing of the upstream."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.config.settings import ProviderSettings
from gateway.discovery import asking
from gateway.discovery.asking import NoList, ask
from gateway.discovery.stored_lists import NO_LIST
from gateway.errors import UpstreamAuthError
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Upstream
from gateway.plugins.instances import check_options
from gateway.plugins.loader import load_plugins
from gateway.plugins.model_list import ListedModel, ListLimits, ModelList
from gateway.plugins.provider import Provider
from gateway.testing.fake_upstream import Reply
from tests.discovery.lists import ListServer, serving, settings_of

SECRET = "sk-live-0123456789abcdef"
SHORT = Timeouts(connect=1.0, first_byte=0.1, idle=0.1, total=0.2)


async def asked(provider: object, **settings: Any) -> list[str]:
    """The names in the list."""
    found = await ask("p", provider, ProviderSettings(plugin="p", **settings), NO_LIST, now=time.time())
    return [one.name for one in found.found.models]


async def refusal(provider: object) -> str:
    with pytest.raises(NoList) as caught:
        await asked(provider)
    return str(caught.value)


async def openai(server: ListServer, folder: Any, upstream: Upstream) -> Provider:
    """The plugin `openai` with a key, before the server."""
    text = '[providers.p]\nplugin = "openai"\nbase_url = "{server}"\nheaders = { x-key = "env:LIST_KEY" }\n'
    settings = settings_of(text, folder, server=server)
    kind, [options] = check_options("p", settings, load_plugins(settings.plugins))
    provider = kind(options, upstream)
    await provider.start()
    return provider


async def test_a_server_that_lists_is_asked_with_the_credential(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIST_KEY", SECRET)
    upstream = Upstream()
    async with serving({"data": [{"id": "a"}, {"id": "b", "extra": 1}, {"id": 7}]}) as server:
        assert await asked(await openai(server, tmp_path, upstream)) == ["a", "b"]
        assert server.upstream.seen[-1].headers["x-key"] == SECRET
    await upstream.close()


async def test_thousands_of_entries_are_read_beside_the_event_loop(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIST_KEY", SECRET)
    threads = list[int]()
    async with serving({"data": [{"id": "a"}]}) as server:
        upstream = Upstream()
        provider = await openai(server, tmp_path, upstream)
        assert isinstance(provider, ModelList)
        module = sys.modules[type(provider).list_models.__module__]
        read = module.read_models  # type: ignore[attr-defined]

        def noted(body: bytes, most: int) -> Any:
            threads.append(threading.get_ident())
            return read(body, most)

        monkeypatch.setattr(module, "read_models", noted)
        assert await asked(provider) == ["a"]
        await upstream.close()
    assert threads and threading.get_ident() not in threads


@pytest.mark.holds("operations/models.md#who-asks-2")
@pytest.mark.parametrize(
    "reply",
    [
        Reply.error(401, f"no such key {SECRET}"),
        Reply.error(500, f"at http://10.1.2.3:8000/models?key={SECRET}"),
        Reply(status=301, headers={"Location": "http://127.0.0.1:9/v1/models"}),
        Reply.silence(),
        Reply(frames=[b'{"data": ['], end="silence"),
        Reply(frames=[b'{"data": ['], end="cut"),
        Reply(body=b'{"data": [' + b" " * 300_000 + b"]}"),
        Reply(body=b"[]"),
        Reply(body=b'{"data": {"id": "a"}}'),
        Reply(body=b"[" * 100_000),
        Reply(body=b"\xff"),
        Reply.json({"data": []}),
        Reply.json({"data": [{"id": "<b>"}]}),
        Reply.hang_up(),
    ],
)
async def test_a_server_that_gives_no_list_is_an_error_without_addresses_and_keys(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reply: Reply
) -> None:
    monkeypatch.setenv("LIST_KEY", SECRET)
    monkeypatch.setattr(asking, "LIMITS", ListLimits(timeouts=SHORT, most_bytes=100_000))
    upstream = Upstream()
    async with serving({}) as server:
        server.reply = reply
        text = await refusal(await openai(server, tmp_path, upstream))
        assert text
        for hidden in (SECRET, "10.1.2.3", "127.0.0.1"):
            assert hidden not in text
        assert SECRET not in caplog.text
        assert server.questions == 1
    await upstream.close()


class Plugin(ModelList):
    """A plugin that does what a test says."""

    secret_texts = (SECRET,)

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def list_models(self, limits: ListLimits) -> Sequence[ListedModel]:
        if isinstance(self._answer, BaseException):
            raise self._answer
        if self._answer is ...:
            await asyncio.Event().wait()
        return self._answer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("provider", "text"),
    [
        (None, "out of service"),
        (object(), "cannot list models"),
        (Plugin(ValueError(f"bad key {SECRET}")), "ValueError"),
        (Plugin(SystemExit(SECRET)), "SystemExit"),
        (Plugin(UpstreamAuthError(detail=SECRET)), "upstream"),
        (Plugin("abc"), "is no list"),
        (Plugin(iter([])), "is no list"),
        (Plugin([None, 7, "a"]), "no models"),
        (Plugin(...), "no answer within"),
    ],
)
async def test_a_plugin_that_gives_no_list_is_an_error_without_keys(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, provider: object, text: str
) -> None:
    monkeypatch.setattr(asking, "WITHIN", 0.05)
    found = await refusal(provider)
    assert text in found
    assert SECRET not in found
    assert SECRET not in caplog.text


async def test_a_list_has_at_most_so_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LIMITS", ListLimits(most_models=3))
    assert await asked(Plugin([ListedModel(name=f"m{number}") for number in range(9)])) == ["m0", "m1", "m2"]
