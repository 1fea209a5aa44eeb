"""Reads what the gateway has logged, which a thread writes in batches some time after the event."""

from __future__ import annotations

import pytest

from tests.polling import until


async def logged(capfd: pytest.CaptureFixture[str], words: str, *, times: int = 1) -> str:
    """All that was logged once `words` are in it so many times."""
    seen: list[str] = []

    def found() -> bool:
        seen.append(capfd.readouterr().err)
        return "".join(seen).count(words) >= times

    await until(found)
    return "".join(seen)
