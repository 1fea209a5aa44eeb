"""What sends a command for each key, account or line sends a bounded number at a time.

A link takes 10,000 commands without a reply. `asyncio.gather` over a comprehension works with the 100 keys of a test
and fails with the 10,000 of a deployment, so it is used only where something else bounds the number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "gateway"
#: Files that may use `asyncio.gather` or `gather_all` with any number of awaitables, and what bounds it.
BOUNDED_OTHERWISE = {
    "testing/hook_cases.py": "calls of one case",
    "ledger/gather_all.py": "the batches of this file",
    "ledger/settlement_writer.py": "entries that `batches` has sent: only their futures are awaited at once",
    "http_server/server.py": "sockets that accept",
    "admin/mail_tasks.py": "mails that are being sent",
    "runtime/other_machines.py": "two kinds of questions",
    "runtime/stopping.py": "workers",
    "runtime/importer.py": "two tasks",
    "runtime/supervisor.py": "workers",
    "runtime/console_calls.py": "workers",
    "runtime/worker_process.py": "lives of a worker",
    "notifications/service.py": "three loops",
    "store/cluster.py": "servers of the store",
    "store/sentinel.py": "sentinels",
    "store/store.py": "servers of the store",
    "setup/found_providers.py": "known local servers",
    "setup/local_models.py": "a semaphore",
    "testing/speech_cases.py": "a number in the case",
    "testing/images_cases.py": "a number in the case",
    "testing/chat_cases.py": "a number in the case",
    "testing/transcription_cases.py": "a number in the case",
    "testing/embeddings_cases.py": "a number in the case",
    "testing/image_edit_cases.py": "a number in the case",
    "testing/moderation_cases.py": "a number in the case",
    "testing/realtime_cases.py": "a number in the case",
    "testing/rerank_cases.py": "a number in the case",
}


def unbounded(source: str) -> list[int]:
    """Lines in which any number of awaitables is awaited at once."""
    return [node.lineno for node in calls(ast.parse(source)) if is_unbounded(node)]


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def name_of(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def is_unbounded(call: ast.Call) -> bool:
    if name_of(call) == "gather":
        return any(isinstance(argument, ast.Starred) for argument in call.args)
    return name_of(call) == "gather_all"


def eager(source: str) -> list[int]:
    """Lines in which a bounded function gets awaitables that were all made, and so sent, before."""
    found = []
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.AsyncFunctionDef)]
    for function in functions:
        values = {
            target.id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in calls(function):
            if name_of(call) in ("gather_bounded", "gather_rolling", "outcomes_bounded"):
                argument = call.args[0]
                value = values.get(argument.id, argument) if isinstance(argument, ast.Name) else argument
                if not is_lazy(value):
                    found.append(call.lineno)
    return found


def is_lazy(value: ast.expr) -> bool:
    """A generator, `map`, or an argument of the function, whose caller is looked at."""
    return isinstance(value, ast.GeneratorExp | ast.Name) or (isinstance(value, ast.Call) and name_of(value) == "map")


def files() -> list[tuple[str, str]]:
    paths = sorted(ROOT.rglob("*.py"))
    return [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths]


def test_number_of_awaitables_is_bounded_everywhere() -> None:
    found = {name: lines for name, source in files() if (lines := unbounded(source))}
    assert {name: lines for name, lines in found.items() if name not in BOUNDED_OTHERWISE} == {}
    assert sorted(BOUNDED_OTHERWISE.keys() - found.keys()) == []


def test_commands_are_made_when_their_batch_begins() -> None:
    assert {name: lines for name, source in files() if (lines := eager(source))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "await asyncio.gather(*(call(name) for name in names))",
        "await asyncio.gather(*[call(name) for name in names])",
        "await asyncio.gather(first, *rest)",
        "await gather_all(map(call, names))",
    ],
)
def test_unbounded_form_is_found(line: str) -> None:
    assert unbounded(line) == [1]


@pytest.mark.parametrize("argument", ["[call(name) for name in names]", "[*calls]", "sent", "list(map(call, names))"])
def test_eager_form_is_found(argument: str) -> None:
    source = f"async def work():\n    sent = [call(name) for name in names]\n    await gather_bounded({argument})\n"
    assert eager(source) == [3]
    lazy = source.replace(f"bounded({argument}", "bounded((call(name) for name in names), 5")
    assert (eager(lazy), unbounded(lazy)) == ([], [])
