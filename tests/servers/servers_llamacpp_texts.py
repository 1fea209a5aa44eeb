"""Completions of llama.cpp through the gateway: its texts, choices and log probabilities, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.testing import RunningGateway
from tests.dialects.clients import events
from tests.polling import until

from .asking import ask, charges
from .llamacpp import LlamaServer

PATH = "/v1/completions"


def question(**fields: Any) -> dict[str, Any]:
    """A request whose answer is the same each time."""
    return {"model": "tiny", "prompt": "Hi", "max_tokens": 24, "temperature": 0, **fields}


def theirs(one: LlamaServer, **fields: Any) -> Any:
    """The same question to the server itself."""
    return one.ask(PATH, question(**fields, model=one.model))


def spelled(text: str) -> dict[int, str]:
    """The texts of a stream, by choice."""
    texts: dict[int, str] = {}
    for chunk in events(text):
        for choice in chunk["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


CASES: tuple[dict[str, Any], ...] = (
    {},
    {"prompt": [5, 6]},
    {"n": 2},
    {"prompt": ["a", "b"], "n": 2},
    {"prompt": [[5], [6], [7]]},
)


@pytest.mark.parametrize("fields", CASES, ids=str)
async def test_texts_are_those_of_a_direct_call(
    served: RunningGateway, one: LlamaServer, fields: dict[str, Any]
) -> None:
    direct = [choice["text"] for choice in theirs(one, **fields)["choices"]]
    whole = await ask(served, PATH, question(**fields))
    assert whole.status == 200, whole.text
    assert [choice["text"] for choice in whole.json["choices"]] == direct
    assert {choice["finish_reason"] for choice in whole.json["choices"]} == {"length"}
    streamed = await ask(served, PATH, question(**fields, stream=True))
    assert spelled(streamed.text) == dict(enumerate(direct))
    assert streamed.text.endswith("data: [DONE]\n\n")


async def test_log_probabilities_have_the_form_of_a_completion(served: RunningGateway, one: LlamaServer) -> None:
    direct = theirs(one, logprobs=2)["choices"][0]
    found = (await ask(served, PATH, question(logprobs=2))).json["choices"][0]["logprobs"]
    tokens = [token["token"] for token in direct["logprobs"]["content"]]
    assert found["tokens"] == tokens
    assert found["text_offset"] == [len("".join(tokens[:place])) for place in range(len(tokens))]
    assert all(len(top) == 2 for top in found["top_logprobs"])


async def test_one_text_is_charged_by_the_servers_count_and_several_by_an_estimate(
    served: RunningGateway, one: LlamaServer
) -> None:
    before = len(charges(served))
    for fields in ({}, {"prompt": ["a", "b"], "n": 2}):
        assert (await ask(served, PATH, question(**fields))).status == 200
    await until(lambda: len(charges(served)) == before + 2)
    alone, several = charges(served)[before:]
    counted = theirs(one)["usage"]
    assert alone["usage"].get("in_text", 0) + alone["usage"].get("in_cached", 0) == counted["prompt_tokens"]
    assert (alone["usage"]["out_text"], bool(alone.get("estimated"))) == (counted["completion_tokens"], False)
    direct = theirs(one, prompt=["a", "b"], n=2)
    assert direct["usage"]["completion_tokens"] == 24  # of one text: there are four
    assert several["estimated"]
    assert several["usage"]["out_text"] >= sum(len(choice["text"]) for choice in direct["choices"]) // 4


@pytest.mark.parametrize("fields", [{"echo": True}, {"suffix": "x"}, {"best_of": 2}, {"max_tokens": 0}], ids=str)
async def test_what_the_server_would_ignore_is_refused(
    served: RunningGateway, one: LlamaServer, fields: dict[str, Any]
) -> None:
    assert theirs(one, **fields)["choices"]  # no error, and no effect
    answered = await ask(served, PATH, question(**fields))
    assert (answered.status, answered.json["error"]["param"]) == (400, next(iter(fields)))
