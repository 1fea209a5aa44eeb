"""The form of operators' lines, and their level."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from gateway.log import configure, set_level


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A stream for the lines of this process; its logging is as before afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)


def failed() -> None:
    try:
        raise ValueError("sk-in-a-traceback")
    except ValueError:
        logging.getLogger("gateway").exception("it failed with %s", "Bearer abc\nand a second line")


def test_lines_are_json_where_access_lines_are(stream: io.StringIO) -> None:
    configure("info", form="auto", access=True, stream=stream)
    failed()
    (text,) = stream.getvalue().splitlines()
    line = json.loads(text)
    assert (line["level"], line["logger"]) == ("error", "gateway")
    assert line["message"] == "it failed with Bearer ***\nand a second line"
    assert line["at"].endswith("Z") and line["pid"] > 0
    assert "ValueError" in line["traceback"] and "in-a-traceback" not in text


@pytest.mark.parametrize(("form", "access"), [("auto", False), ("text", True)])
def test_lines_are_text_without_access_lines_or_if_the_settings_say_so(
    stream: io.StringIO, form: str, access: bool
) -> None:
    configure("info", form=form, access=access, stream=stream)
    logging.getLogger("gateway").error("it failed")
    assert stream.getvalue().endswith(" it failed\n")


def test_lines_on_a_terminal_are_text(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "isatty", lambda: True)
    configure("info", form="auto", access=True, stream=stream)
    logging.getLogger("gateway").error("it failed")
    assert stream.getvalue().endswith(" it failed\n")


def test_level_changes_in_a_running_process(stream: io.StringIO) -> None:
    configure("info", form="text", stream=stream)
    log = logging.getLogger("gateway")
    log.debug("first line")
    set_level("debug")
    log.debug("shown at debug")
    failed()
    set_level("error")
    log.warning("third line")
    text = stream.getvalue()
    assert "shown at debug" in text and "first line" not in text and "third line" not in text
    assert "ValueError: sk-***" in text  # only at debug the words of exceptions are written
