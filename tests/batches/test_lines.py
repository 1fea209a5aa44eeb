"""The lines of an input: found and checked in bounded memory, whatever the file has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as property_settings
from hypothesis import strategies as st

from gateway.batches.lines import BOM, MOST_ERRORS, Examination, examine

URL = "/v1/chat/completions"


def line(custom_id: str = "a", **changes: object) -> bytes:
    """A valid line, without its end."""
    fields = {"custom_id": custom_id, "method": "POST", "url": URL, "body": {"model": "m"}, **changes}
    return json.dumps(fields).encode()


def look(path: Path, content: bytes, *, most_lines: int = 1_000, longest: int = 2_000) -> Examination:
    """What is found in a file with this content."""
    path.write_bytes(content)
    return examine(path, URL, most_lines=most_lines, longest=longest)


def ids(path: Path, found: Examination) -> list[tuple[int, str]]:
    """Number and custom_id of each line, read by its place."""
    with path.open("rb") as file:
        return [(one.number, one.custom_id) for one in (found.read(file, index) for index in range(len(found)))]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [b"", b"\n", b"\n\n \t\r\n"])
def test_lines_are_found_with_any_end(tmp_path: Path, end: bytes, last: bytes) -> None:
    path = tmp_path / "in"
    found = look(path, BOM + line("first") + end + end + line("zweite Zeile ✓") + last)
    assert found.errors == []
    assert ids(path, found) == [(1, "first"), (3, "zweite Zeile ✓")]


def test_line_that_is_too_long_is_named_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "in"
    for size in (2_001, 5_000, 3_000_000):
        found = look(path, line("a") + b"\n" + b"x" * size + b"\n" + line("b") + b"\n")
        assert [(error.code, error.line) for error in found.errors] == [("line_too_long", 2)]
        assert ids(path, found) == [(1, "a"), (3, "b")]
    fits = line("c", body={"model": "m", "pad": ""})
    fits = line("c", body={"model": "m", "pad": "x" * (2_000 - len(fits))})
    assert look(path, fits + b"\r\n").errors == []
    assert look(path, fits).errors == []
    assert [error.code for error in look(path, fits + b"x").errors] == ["line_too_long"]


def test_numbers_of_lines_and_of_errors_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "in"
    found = look(path, b"\n".join(line(str(n)) for n in range(11)), most_lines=10)
    assert [(error.code, error.line) for error in found.errors] == [("too_many_requests", 11)]
    found = look(path, b"x\n" * 10_000)
    assert len(found.errors) == MOST_ERRORS


@pytest.mark.parametrize("body", ["text", 5, None, [], {"model": ""}, {"model": 5}, {"model": "m", "stream": 1}])
def test_wrong_body_is_refused(tmp_path: Path, body: object) -> None:
    assert len(look(tmp_path / "in", line(body=body)).errors) == 1


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.sampled_from([line("a"), line("b"), b"", b"{}", b'{"body":' + b"[" * 3_000, b"\0", b"\xff", BOM]),
        ),
        max_size=12,
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r", b""]),
)
@property_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_have_lines_or_errors(tmp_path: Path, parts: list[bytes], end: bytes) -> None:
    path = tmp_path / "in"
    found = look(path, end.join(parts))
    assert found.errors or len(found)
    assert len({custom_id for _, custom_id in ids(path, found)}) == len(found)
