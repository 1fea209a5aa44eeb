"""LiteLLM's proxy, without a database: one master key, no accounts and no budgets, which is its fastest form.

It lives in a virtual environment of its own (`pip install 'litellm[proxy]'`); --litellm or $BENCH_LITELLM says where
its `litellm` program is.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from benchmarks.contenders.contender import Contender, Place, Running, await_ready
from benchmarks.processes import running
from gateway.testing.ports import free_ports

ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise it fetches its price list from the network at start
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "DISABLE_ADMIN_UI": "True",
    "NO_PROXY": "127.0.0.1",
}


class LiteLLM(Contender):
    """`litellm --config …`."""

    name = "litellm"
    scales = True

    def __init__(self, program: str) -> None:
        self._program = shutil.which(program or "litellm") or ""
        self._told = program

    def absent(self) -> str:
        """Without its program."""
        if self._program:
            return ""
        return f"no program {self._told}" if self._told else "not on PATH; say where with --litellm or $BENCH_LITELLM"

    @contextmanager
    def running(self, place: Place) -> Iterator[Running]:
        """JSON is YAML: the configuration needs no YAML writer."""
        [port] = free_ports(1)
        config = place.folder / "litellm.yaml"
        config.write_bytes(
            msgspec.json.encode(
                {
                    "model_list": [
                        {
                            "model_name": model,
                            "litellm_params": {
                                "model": f"openai/{model}",
                                "api_base": f"{place.upstream_url}/v1",
                                "api_key": "sk-mock",
                            },
                        }
                        for model in place.models
                    ],
                    "litellm_settings": {"telemetry": False, "num_retries": 0},
                }
            )
        )
        options = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        command = [self._program, *options, "--num_workers", str(place.workers)]
        log = place.folder / "litellm.log"
        key = f"sk-{secrets.token_hex(32)}"  # it does not start without one
        env = {**ENVIRONMENT, "LITELLM_MASTER_KEY": key}
        with running(command, log=log, cores=place.cores.contender, env=env) as process:
            server = Running(port=port, pids=(process.pid,), headers={"Authorization": f"Bearer {key}"})
            await_ready(self.name, server, process)
            yield server
