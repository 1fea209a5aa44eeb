"""docs/errors.md and the tree in the module's docstring say what the classes of `gateway.errors` do, and no more."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import msgspec
import pytest

from gateway import errors
from gateway.errors import GatewayError
from gateway.errors.base import MAX_MESSAGE

ROOT = Path(__file__).parent.parent
FOLDERS = (ROOT / "gateway", ROOT / "providers")
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ROWS = {
    cells[0].strip("`"): cells[1:]
    for cells in ([cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines())
    if cells and re.fullmatch(r"`[A-Z]\w+`", cells[0])
}


def family(base: type[GatewayError]) -> list[type[GatewayError]]:
    return [base, *(heir for child in base.__subclasses__() for heir in family(child))]


CLASSES = {kind.__name__: kind for kind in family(GatewayError) if kind.__module__.startswith("gateway.errors")}
EVERY = pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)


def sample(kind: type[GatewayError]) -> GatewayError:
    if kind is errors.MethodNotAllowed:
        return errors.MethodNotAllowed("GET, HEAD")
    if kind in {errors.RequestRateLimited, errors.TokenRateLimited}:
        return kind(retry_after=0.2)  # the ledger always says how long
    return kind()


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_page_has_a_row_for_each_error_and_no_other() -> None:
    assert sorted(ROWS) == sorted(CLASSES)


@EVERY
def test_row_equals_the_attributes_and_headers_of_its_class(kind: type[GatewayError]) -> None:
    status, shown_type, codes, headers, cause, _ = ROWS[kind.__name__]
    error = sample(kind)
    assert (int(status), ticked(shown_type)) == (error.status, [error.type])
    assert error.code in ticked(codes) or kind is errors.OutOfRange
    shown = {name: value for name, _, value in (text.partition(": ") for text in ticked(headers))}
    assert set(shown) == set(error.headers())
    assert all(error.headers()[name] == value for name, value in shown.items() if value)
    assert cause


@EVERY
def test_body_has_the_four_keys_and_a_message(kind: type[GatewayError]) -> None:
    inner = msgspec.json.decode(sample(kind).body())["error"]
    assert list(inner) == ["message", "type", "param", "code"]
    assert inner["message"]
    assert isinstance(inner["code"], str)


@EVERY
def test_error_is_unchanged_after_transfer_between_processes(kind: type[GatewayError]) -> None:
    again = pickle.loads(pickle.dumps(sample(kind)))
    assert (type(again), again.message) == (kind, sample(kind).message)


def test_every_code_written_in_the_sources_is_on_the_page() -> None:
    texts = [(path, path.read_text(encoding="utf-8")) for folder in FOLDERS for path in folder.rglob("*.py")]
    for path, text in texts:
        for node in ast.walk(ast.parse(text)) if "code=" in text else ():
            if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
                assert f"`{node.value.value!s}`" in PAGE, (path, node.value.value)


def test_every_error_without_subclasses_is_used_by_the_sources() -> None:
    missing = {name for name, kind in CLASSES.items() if not kind.__subclasses__()}
    for path in (path for folder in FOLDERS for path in folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if ROOT / "gateway" / "errors" not in path.parents and any(name in text for name in missing):
            nodes = list(ast.walk(ast.parse(text)))
            missing -= {node.id for node in nodes if isinstance(node, ast.Name)}
            missing -= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert missing == set()


def test_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    """Each branch names its head and status, then all that descends from it, in any number of lines."""
    assert errors.__doc__ is not None
    drawn: dict[str, tuple[int, set[str]]] = {}
    branch = ""
    for line in errors.__doc__.split("    GatewayError\n")[1].split("\n\n")[0].splitlines():
        head = re.search(r"[├└]── (\w+) (\d{3})", line)
        if head:
            branch = head[1]
            drawn[branch] = (int(head[2]), set())
        drawn[branch][1].update(set(re.findall(r"[A-Z]\w+", line)) - {branch})
    real = {
        kind.__name__: (kind.status, {heir.__name__ for heir in family(kind)[1:]} & set(CLASSES))
        for kind in GatewayError.__subclasses__()
        if kind.__module__.startswith("gateway.errors")
    }
    assert drawn == real


def test_page_names_every_fate_of_a_store_command_as_the_log_does() -> None:
    section = PAGE.split("\n## The gateway\n")[1].split("\n## ")[0]
    for fate in errors.StoreFate:
        assert f"`{fate.value}`" in section
        assert errors.StoreUnavailable(detail="why", fate=fate).log_text() == f"{fate.value}: why"


def test_long_waits_disable_sdk_retries_and_short_ones_are_rounded_up() -> None:
    assert errors.RequestRateLimited(retry_after=60.5).headers()["x-should-retry"] == "false"
    headers = errors.RequestRateLimited(retry_after=0.0001).headers()
    assert (headers["Retry-After"], headers["retry-after-ms"], headers["x-should-retry"]) == ("1", "1", "true")


def test_messages_are_bounded_and_detail_is_not_sent() -> None:
    error = errors.UpstreamError("x" * 5000, detail="for the log")
    assert len(error.message) == MAX_MESSAGE
    assert b"for the log" not in error.body()


@pytest.mark.parametrize(
    ("given", "kept"),
    [(7, 7.0), (0.5, 0.5), (1e9, 86_400.0), (-1, None), (float("nan"), None), ("7", None), (None, None)],
)
def test_pause_that_is_set_later_is_checked_like_that_of_the_constructor(given: object, kept: float | None) -> None:
    error, made = errors.UpstreamRateLimited(), errors.UpstreamRateLimited(retry_after=given)  # type: ignore[arg-type]
    error.retry_after = given  # type: ignore[assignment]
    assert error.retry_after == made.retry_after == kept
    assert ("Retry-After" in error.headers()) == (kept is not None)
