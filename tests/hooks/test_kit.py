"""`check_hook` finds the faults of a hook, and the example of the documentation has none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gateway import AnswerCall, Authenticate, CheckAnswer, CheckCall, Hook, Identity, KeepAnswer, Route, WholeAnswer
from gateway.testing import check_hook

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")


def test_the_example_of_the_page_conforms_and_its_tests_pass() -> None:
    (code,) = re.findall(r"^`no_shouting\.py`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tests,) = re.findall(r"^## Test a hook\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "no_shouting"}
    exec(compile(code, "no_shouting.py", "exec"), names)
    exec(compile(tests, "test_no_shouting.py", "exec"), names)
    names["test_conforms"]()
    names["test_it_replaces"]()
    registered: list[Any] = []
    names["register_hooks"](registered.append)
    assert [hook.name for hook in registered] == ["no-shouting"]


class Raises(Hook, CheckCall):
    name = "faulty"

    async def check_call(self, call: Any) -> Any:
        raise KeyError


class ReturnsText(Raises):
    async def check_call(self, call: Any) -> Any:
        return "text"


class ChangesTheModel(Raises):
    async def check_call(self, call: Any) -> Any:
        return {**call.document, "model": "other"}


class NoCoroutine(Raises):
    def check_call(self, call: Any) -> Any:  # type: ignore[override]
        return None


class ReplacesParts(Hook, CheckAnswer):
    name = "faulty"

    async def check_answer(self, call: Any, answer: Any) -> Any:
        return answer.document


class KnowsAll(Hook, Authenticate):
    name = "faulty"

    async def authenticate(self, credential: str) -> Identity | None:
        return Identity(account="acme", subject="s")


class AddsOptions(Hook, Route):
    name = "faulty"

    async def route(self, call: Any, options: Any) -> Any:
        return [*options, *options]


class AnswersWithADict(Hook, AnswerCall):
    name = "faulty"

    async def answer_call(self, call: Any) -> Any:
        return {"choices": []}


class AnswersWithNothing(AnswersWithADict):
    async def answer_call(self, call: Any) -> Any:
        return WholeAnswer(b'{"choices": []}')


class FailsToKeep(Hook, KeepAnswer):
    name = "faulty"

    async def keep_answer(self, call: Any, answer: WholeAnswer) -> None:
        raise KeyError


class DoesNothing(Hook):
    name = "faulty"


@pytest.mark.parametrize(
    "hook",
    [
        Raises,
        ReturnsText,
        ChangesTheModel,
        NoCoroutine,
        ReplacesParts,
        KnowsAll,
        AddsOptions,
        AnswersWithADict,
        AnswersWithNothing,
        FailsToKeep,
        DoesNothing,
    ],
)
def test_a_faulty_hook_is_found(hook: Any) -> None:
    with pytest.raises(AssertionError):
        check_hook(hook)
