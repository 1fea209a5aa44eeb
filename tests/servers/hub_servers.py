"""Servers that read a model of Hugging Face's form, each out of an environment of its own.

Their packages are gigabytes and do not go together, so a variable of the environment names each program. A test whose
program is not named is skipped.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.testing.ports import free_ports
from tests.polling import ENDS_WITHIN, until_blocking

from .model_server import ModelServer

ALONE = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}  # fmt: skip


def program_of(variable: str) -> str:
    """The program that the variable names; skips the test if it names none."""
    if not (program := os.environ.get(variable)):
        pytest.skip(f"{variable} names no program")
    return program


@contextmanager
def hub_server(variable: str, model: str, *words: str, health: str = "/health", **more: str) -> Iterator[ModelServer]:
    """Run the program that the variable names; skip the test if it names none. `more`: of its environment."""
    program = program_of(variable)
    [port] = free_ports(1)
    command = [program, *words, "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(
        command,
        env={**os.environ, **ALONE, **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        server = ModelServer(port, model)
        try:
            until_blocking(lambda: process.poll() is not None or server.status(health) == 200, within=ENDS_WITHIN)
            assert process.poll() is None, f"{program} does not start"
            yield server
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # vLLM has processes of its own


@contextmanager
def vllm_server(folder: Path) -> Iterator[ModelServer]:
    """vLLM on processors, without compiling."""
    words = ("--served-model-name", "tiny", "--max-model-len", "2048", "--max-num-seqs", "4")
    more = ("--dtype", "float32", "--enforce-eager", "--enable-prompt-tokens-details")
    with hub_server("SERVERS_VLLM", "tiny", "serve", str(folder), *words, *more) as server:
        yield server


@contextmanager
def transformers_server(folder: Path) -> Iterator[ModelServer]:
    """`transformers serve` with one model."""
    with hub_server("SERVERS_TRANSFORMERS", str(folder), "serve", "--device", "cpu", str(folder)) as server:
        yield server


@contextmanager
def infinity_server(folder: Path) -> Iterator[ModelServer]:
    """Infinity with a model of vectors."""
    words = ("--model-id", str(folder), "--served-model-name", "vectors", "--url-prefix", "/v1")
    more = ("--engine", "torch", "--device", "cpu", "--no-model-warmup", "--no-bettertransformer")
    with hub_server("SERVERS_INFINITY", "vectors", "v2", *words, *more, health="/v1/models") as server:
        yield server


@contextmanager
def whisper_server(folder: Path) -> Iterator[ModelServer]:
    """faster-whisper-server with a model in CTranslate2's form."""
    with hub_server("SERVERS_WHISPER", "whisper", str(folder)) as server:
        yield server


@contextmanager
def speech_server(folder: Path) -> Iterator[ModelServer]:
    """local-tts with the voice `tone` of the folder `voices`."""
    (folder / "settings.json").write_text('{"api_default_voice": "tone"}', encoding="utf-8")
    with hub_server("SERVERS_SPEECH", "tts-1", health="/v1/models", LOCAL_TTS_DATA_DIR=str(folder)) as server:
        yield server
