"""`python -m tests.dialects.litellm PROGRAM`: the situations of the standards over LiteLLM's proxy.

PROGRAM is `litellm` of an environment with `litellm[proxy]`. The upstreams are those of the gateway's own test: chat
completions, Messages and Gemini. The figures go into `LITELLM` of `matrix.py`, and from there into docs/dialects.md.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from gateway.testing import Reply, Seen, background_upstream
from gateway.testing.ports import free_ports
from gateway.testing.servers.client import Server
from gateway.testing.servers.report import line
from gateway.testing.servers.run import Outcome, check_server
from gateway.testing.servers.situations import SITUATIONS, USUAL
from tests.clients.independent import KEY, OFFLINE, wait_for

from .test_conformance import modelled

CONFIG = """
model_list:
  - model_name: chat
    litellm_params: {{model: deepseek/up, api_base: "{url}/v1", api_key: upstream}}
  - model_name: messages
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_base: "{url}", api_key: upstream}}
  - model_name: gemini
    litellm_params: {{model: gemini/gemini-2.5-pro, api_base: "{url}/v1beta", api_key: upstream}}
general_settings: {{master_key: {key}}}
router_settings: {{num_retries: 0, disable_cooldowns: true}}
"""
PATHS = ("/chat/completions", "/messages", "enerateContent")


def answer(seen: Seen) -> Reply:
    """The scripted model; nothing at the paths that the vendors do not have."""
    path = seen.path.partition("?")[0]
    return modelled(seen) if path.endswith(PATHS) else Reply.error(404, f"no such path: {path}")


def main(program: str) -> None:
    """Print the outcome of each situation, then how many hold by API, of three upstreams."""
    counts: Counter[str] = Counter()
    held: Counter[str] = Counter()

    def tell(outcome: Outcome) -> None:
        print(line(outcome), flush=True)
        counts[outcome.api] += 1
        held[outcome.api] += not outcome.faults

    with tempfile.TemporaryDirectory() as name, background_upstream(answer) as url:
        folder, (port,) = Path(name), free_ports(1)
        config, log = folder / "litellm.yaml", folder / "litellm.log"
        config.write_text(CONFIG.format(url=url, key=KEY))
        command = [program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, env={**os.environ, **OFFLINE})
        try:
            wait_for(process, f"http://127.0.0.1:{port}/health/liveliness", log)
            for model in ("chat", "messages", "gemini"):
                server = Server(f"http://127.0.0.1:{port}/v1", KEY, model)
                asyncio.run(check_server(server, [one for one in SITUATIONS if one.api in USUAL], tell))
        finally:
            process.terminate()
            process.wait(30)
    for api, count in counts.items():
        print(f"{api}: {held[api]} of {count}")


if __name__ == "__main__":
    main(sys.argv[1])
