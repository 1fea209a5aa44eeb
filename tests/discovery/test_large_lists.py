"""A list of megabytes is decoded beside the event loop, model by model: one call would hold the interpreter."""

from __future__ import annotations

import sys
import threading
from typing import Any

import msgspec
import pytest

from gateway.discovery import stored_lists
from gateway.discovery.stored_lists import ListState, PastPrice, StoredList, StoredModel, decoded, read_list, write_list
from gateway.store import Store
from gateway_providers.openai import OpenAIProvider

PAST = PastPrice("2026-11-01", {"input": 1})
WHOLE = StoredList(
    models=tuple(StoredModel(name=f"m{number}", amounts={"input": number}, earlier=(PAST,)) for number in range(50)),
    gone=(StoredModel(name="gone", amounts={"input": 7}, left_at=1.0),),
    version="1",
)


class Noting:
    """A decoder that notes the threads of its calls."""

    def __init__(self, decoder: msgspec.json.Decoder[Any]) -> None:
        self._decoder = decoder
        self.threads = list[int]()

    def decode(self, raw: Any) -> Any:
        self.threads.append(threading.get_ident())
        return self._decoder.decode(raw)


async def test_a_stored_list_is_decoded_in_a_thread_model_by_model(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = Noting(stored_lists._models)
    monkeypatch.setattr(stored_lists, "_models", noting)
    await write_list(store, "large", WHOLE, ListState(version="1"), keep=60.0)
    assert await read_list(store, "large") == WHOLE
    assert len(noting.threads) == 51
    assert threading.get_ident() not in noting.threads


def test_a_list_in_pieces_is_the_same() -> None:
    assert decoded(msgspec.json.encode(WHOLE)) == WHOLE
    assert decoded(b"{}") == StoredList()
    for broken in (b"[]", b"{", b'{"models":[1]}', b'{"models":[{"name":7}]}'):
        with pytest.raises(msgspec.MsgspecError):
            decoded(broken)


def test_the_answer_of_a_server_is_decoded_model_by_model(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[OpenAIProvider.list_models.__module__]
    noting = Noting(module._models)  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "_models", noting)
    body = msgspec.json.encode({"data": [{"id": f"m{number}"} for number in range(50)]})
    assert [one.name for one in module.read_models(body, 30)] == [f"m{number}" for number in range(30)]  # type: ignore[attr-defined]
    assert len(noting.threads) == 30
