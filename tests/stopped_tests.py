"""Says where a test waited that did not end in its time.

pytest-tornado cancels such a test, and raises a TimeoutError that names no place.
"""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def says_where(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The test; if it is cancelled, it fails with the lines of the tests at which it waited, the innermost last."""

    @functools.wraps(test)
    async def run(**fixtures: Any) -> None:
        try:
            await test(**fixtures)
        except asyncio.CancelledError as error:
            raise AssertionError(f"the test was stopped; it waited at {_places(error)}") from error

    return run


def _places(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(HERE)]
    return " > ".join(f"{Path(frame.filename).name}:{frame.lineno} ({frame.name})" for frame in own)
