"""The supervisor replaces an importer that ends, and one that hangs."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from gateway.config.configuration import Configuration
from gateway.runtime import helper_process
from gateway.runtime.helper_process import HelperBriefing, HelperProcess
from tests.polling import until


@pytest.mark.slow
async def test_importer_that_hangs_is_replaced(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(helper_process, "SILENT_FOR", 3.0)
    reported, ended = list[str](), list[str]()
    process = HelperProcess(
        "importer",
        lambda: HelperBriefing(Configuration.of_demo(tmp_path / "data"), socket=str(tmp_path / "nowhere")),
        on_counts=lambda name, payload: reported.append(name),
        on_end=ended.append,
    )
    running = asyncio.create_task(process.keep_alive())
    await until(lambda: reported)
    hung = process.pid
    os.kill(hung, signal.SIGSTOP)
    await until(lambda: process.pid not in (0, hung))
    assert ended == [f"importer-{hung}"]
    await process.stop()
    await running
    assert process.pid == 0


@pytest.mark.slow
async def test_importer_with_nothing_to_do_reports_and_is_kept(valkey: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(helper_process, "SILENT_FOR", 3.0)
    messages, ended = list[str](), list[str]()
    process = HelperProcess(
        "importer",
        lambda: HelperBriefing(Configuration.of_demo(tmp_path / "data"), socket=str(valkey)),
        on_counts=lambda name, payload: messages.append("counts"),
        on_end=ended.append,
    )
    running = asyncio.create_task(process.keep_alive())
    # One message a second: more of them than fit into two of the times after which a silent process is killed.
    await until(lambda: len(messages) >= 7 or ended)
    assert not ended
    await process.stop()
    await running
