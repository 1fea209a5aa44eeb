"""The agents over another gateway, for comparison: `python -m tests.agents.peer --litellm PROGRAM [AGENT…]`.

The same agents change the same file over the same scripted model, through this gateway and through LiteLLM's proxy. A
run is good if the agent ends with 0 and the file is right. `$GATEWAY_AGENTS` is the folder of the agents.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from gateway.testing import running_gateway
from gateway.testing.ports import free_ports
from tests.polling import until_blocking

from .conftest import CONFIG, MODEL, UPSTREAMS
from .programs import AGENTS, Agent, Place, step
from .scripted_model import prompt
from .upstreams import ScriptedServer, scripted_server

KEY = "sk-peer-0123456789"
PREFIXES = {"chat": "openai", "messages": "anthropic", "gemini": "gemini"}
BASES = {"chat": "/v1", "messages": "", "gemini": "/v1beta"}
STARTS_WITHIN = 120.0  # seconds; 25 on two busy cores


@contextmanager
def litellm_proxy(program: Path, upstream: ScriptedServer) -> Iterator[tuple[str, str]]:
    """Address and key of a running LiteLLM proxy with a model for each API of the upstream."""
    (port,) = free_ports(1)
    lines = ["model_list:"]
    for api in UPSTREAMS:
        target = f"{PREFIXES[api]}/scripted"
        base = upstream.address + BASES[api]
        lines.append(f"  - model_name: agent-{api}")
        lines.append(f"    litellm_params: {{model: {target}, api_key: upstream-key, api_base: '{base}'}}")
    lines.append(f"general_settings: {{master_key: {KEY}}}")
    lines.append("litellm_settings: {drop_params: true}")
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "litellm.yaml"
        config.write_text("\n".join(lines), encoding="utf-8")
        environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_DOCS": "True"}
        with (Path(name) / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=name,
            )
        try:
            until_blocking(lambda: _answers(f"http://127.0.0.1:{port}/health/liveliness"), within=STARTS_WITHIN)
            yield f"http://127.0.0.1:{port}", KEY
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def this_gateway(upstream: ScriptedServer) -> Iterator[tuple[str, str]]:
    """The same of this gateway."""
    with tempfile.TemporaryDirectory() as name:
        key_file = Path(name) / "key"
        key_file.write_text("upstream-key", encoding="utf-8")
        key_file.chmod(0o600)
        models = "".join(MODEL.format(api=api) for api in UPSTREAMS)
        with running_gateway(CONFIG.format(address=upstream.address, key_file=key_file) + models) as up:
            yield up.base_url.removesuffix("/v1"), up.api_key


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def succeeds(agent: Agent, address: str, key: str, api: str) -> bool:
    """Whether two changes with a failing command between them, and a third in a second turn, end well."""
    with tempfile.TemporaryDirectory() as name:
        home, work = Path(name) / "home", Path(name) / "work"
        home.mkdir()
        work.mkdir()
        notes = work / "notes.txt"
        notes.write_text("one\n", encoding="utf-8")
        place = Place(address, key, f"agent-{api}", home, work)
        for first, last in (("one", "two"), ("two", "three")):
            change = step(agent, first, last)
            failing = [] if agent.name == "aider" else [("shell", "ls /no/such/folder")]
            try:
                done = agent.run(place, prompt(change, *failing, ("say", "Done.")), is_first=first == "one")
            except subprocess.TimeoutExpired:
                return False
            if done.returncode or notes.read_text(encoding="utf-8") != f"{last}\n":
                return False
    return True


@click.command()
@click.option("--litellm", type=click.Path(path_type=Path, exists=True), required=True, help="LiteLLM's program.")
@click.argument("names", nargs=-1)
def main(litellm: Path, names: tuple[str, ...]) -> None:
    """Print a table: agents, APIs of the model, and how many runs ended well."""
    agents = [agent for agent in AGENTS if not names or agent.name in names]
    with ExitStack() as stack:
        upstream = stack.enter_context(scripted_server())
        places = {
            "this gateway": stack.enter_context(this_gateway(upstream)),
            "LiteLLM": stack.enter_context(litellm_proxy(litellm, upstream)),
        }
        click.echo("| agent | model's API | " + " | ".join(places) + " |\n|---|---|" + "---|" * len(places))
        totals = dict.fromkeys(places, 0)
        for agent in agents:
            for api in UPSTREAMS:
                good = {name: succeeds(agent, address, key, api) for name, (address, key) in places.items()}
                for name, one in good.items():
                    totals[name] += one
                words = " | ".join("works" if one else "fails" for one in good.values())
                click.echo(f"| {agent.name} | {api} | {words} |")
        count = len(agents) * len(UPSTREAMS)
        click.echo("| all | | " + " | ".join(f"{total} of {count}" for total in totals.values()) + " |")


if __name__ == "__main__":
    main()
