"""LiteLLM's proxy before the failing provider: two retries, 30 seconds and one fallback set, all else its default."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.contenders import Running
from benchmarks.contenders.contender import await_ready
from benchmarks.contenders.litellm import ENVIRONMENT
from benchmarks.cores import available_cores
from benchmarks.failover.situations import SITUATIONS
from benchmarks.fault import BenchFault
from benchmarks.processes import running
from gateway.testing.ports import free_ports


def configuration(provider_port: int) -> dict[str, object]:
    """The models S01 to S16 with their fallbacks; `mock` tells that it serves."""
    names = [*(situation.name for situation in SITUATIONS), "healthy", "strict", "mock"]
    fallbacks = [{situation.name: [situation.fallback]} for situation in SITUATIONS]
    base = {"api_base": f"http://127.0.0.1:{provider_port}/v1", "api_key": "sk-mock"}
    return {
        "model_list": [{"model_name": name, "litellm_params": {"model": f"openai/{name}", **base}} for name in names],
        "router_settings": {
            "num_retries": 2,
            "timeout": 30,
            "fallbacks": fallbacks,
            "context_window_fallbacks": fallbacks,
        },
        "litellm_settings": {"telemetry": False, "drop_params": True},
    }


@contextmanager
def litellm(program: str, provider_port: int) -> Iterator[list[Running]]:
    """The proxy, as long as the block lasts."""
    found, [port] = shutil.which(program), free_ports(1)
    if found is None:
        raise BenchFault(f"no program {program}")
    key = f"sk-{secrets.token_hex(32)}"
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        config = Path(name) / "litellm.yaml"
        config.write_bytes(msgspec.json.encode(configuration(provider_port)))  # JSON is YAML
        command = [found, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        env = {**ENVIRONMENT, "LITELLM_MASTER_KEY": key}
        log = Path(name) / "litellm.log"
        with running(command, log=log, cores=available_cores(), env=env) as process:
            server = Running(port=port, pids=(process.pid,), headers={"Authorization": f"Bearer {key}"})
            await_ready("litellm", server, process)
            yield [server]
