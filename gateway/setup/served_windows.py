"""The context window that a local model server serves, by what each kind of server says of itself.

It may be shorter than the one that the model was trained with: llama.cpp divides its context over its slots, and Ollama
loads a model with a length of its own. A caller who believes the longer one is refused or, by Ollama, silently cut. So
a length that only the model has is not taken.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from gateway.ledger.gather_all import gather_bounded

#: Asks the server: the path, and a document for a POST. The JSON of the answer; None if there is none.
Ask = Callable[[str, Mapping[str, Any] | None], Awaitable[Any]]
Windows = list[int | None]

_NUM_CTX = re.compile(r"(?:^|\n)num_ctx[ \t]+(\d+)")


async def served_windows(kind: str, entries: Sequence[Mapping[str, Any]], ask: Ask) -> Windows:
    """For each model of a list of models, in tokens; None where it is not known."""
    if kind == "ollama":
        return await _of_ollama(entries, ask)
    if kind == "llamacpp":
        return await _of_llamacpp(entries, ask)
    return [_tokens(entry.get("max_model_len")) for entry in entries]  # vLLM, SGLang


async def _of_llamacpp(entries: Sequence[Mapping[str, Any]], ask: Ask) -> Windows:
    """That of a slot: `meta.n_ctx` of the list, or of `/props` where one model is served."""
    windows = [_tokens(_member(entry.get("meta"), "n_ctx")) for entry in entries]
    if len(windows) == 1 and windows[0] is None:
        settings = _member(await ask("/props", None), "default_generation_settings")
        windows = [_tokens(_member(settings, "n_ctx"))]
    return windows


async def _of_ollama(entries: Sequence[Mapping[str, Any]], ask: Ask) -> Windows:
    """That of the loaded model, or the one with which its parameters say that it is loaded."""
    running = _member(await ask("/api/ps", None), "models")
    loaded = {
        one.get("name"): _tokens(one.get("context_length"))
        for one in (running if isinstance(running, list) else [])
        if isinstance(one, dict)
    }

    async def window(entry: Mapping[str, Any]) -> int | None:
        found = loaded.get(entry["id"])
        if found is not None:
            return found
        parameters = _member(await ask("/api/show", {"model": entry["id"]}), "parameters")
        written = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
        return _tokens(int(written[1][:10])) if written else None

    return await gather_bounded(map(window, entries))


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _tokens(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None
