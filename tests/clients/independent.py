"""LiteLLM's proxy with mocked answers: an OpenAI-compatible server that shares no line of code with the gateway.

`installed(cache)` is the program, in an environment of its own because LiteLLM pins another `openai`; `proxy(program,
folder)` runs it on a free port. `independent.txt` has the packages that it imports, at fixed versions: all that LiteLLM
requires would be twice as much, and pip would have to choose their versions. Sharp edge: installing takes about half a
minute and 280 MB, once, in pytest's cache folder (`pytest --cache-clear` throws it away).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.testing.ports import free_ports
from tests.polling import until_blocking

REQUIREMENTS = Path(__file__).with_suffix(".txt")
INSTALL_WITHIN = 600.0  # seconds; measured 21
START_WITHIN = 90.0  # seconds; measured 7, nearly all of it imports
KEY = "sk-independent-0123456789"

SENTENCE = "Four ports, one tide."
RECORD = '{"port": "Brest", "metres": 6}'
ARGUMENTS = '{"port": "Brest"}'

MODELS = f"""
model_list:
  - model_name: up-words
    litellm_params: {{model: openai/w, api_key: none, mock_response: "{SENTENCE}"}}
  - model_name: up-record
    litellm_params: {{model: openai/r, api_key: none, mock_response: '{RECORD}'}}
  - model_name: up-tide
    litellm_params:
      model: openai/t
      api_key: none
      mock_response: ""
      mock_tool_calls:
        - {{id: call_tide, type: function, function: {{name: tide, arguments: '{ARGUMENTS}'}}}}
  - model_name: up-limited
    litellm_params: {{model: openai/l, api_key: none, mock_response: "litellm.RateLimitError"}}
  - model_name: up-broken
    litellm_params: {{model: openai/b, api_key: none, mock_response: "litellm.InternalServerError"}}
  - model_name: up-window
    litellm_params: {{model: openai/c, api_key: none, mock_response: "litellm.ContextWindowExceededError"}}
general_settings: {{master_key: {KEY}}}
router_settings: {{num_retries: 0, disable_cooldowns: true}}
"""
OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches a price list at every start
    "PYTHONDONTWRITEBYTECODE": "",  # `installed` has compiled nothing
    "NO_DOCS": "True",
    "NO_REDOC": "True",
}


def installed(cache: Path) -> Path:
    """The proxy's program, installed under `cache` by whichever interpreter comes first."""
    environment = cache / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    done = environment / "installed"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", environment], check=True)
            pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "install", "-qq"]
            # The proxy imports a small part of what is installed, and Python compiles that part when it is started.
            options = ["--disable-pip-version-check", "--no-compile", "--no-deps"]
            command = [*pip, *options, "-r", str(REQUIREMENTS)]
            tries = (subprocess.run(command, timeout=INSTALL_WITHIN).returncode == 0 for _ in range(3))
            assert any(tries), "a download fails"
            done.touch()
    return environment / "bin/litellm"


@contextmanager
def proxy(program: Path, folder: Path) -> Iterator[str]:
    """The address of a running proxy, as OpenAI-compatible clients expect it."""
    (port,) = free_ports(1)
    config, log = folder / "litellm.yaml", folder / "litellm.log"
    config.write_text(MODELS)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, "--config", config, "--host", "127.0.0.1", "--port", str(port)],
            stdout=out,
            stderr=out,
            cwd=folder,
            env={**os.environ, **OFFLINE},
        )
    try:
        wait_for(process, f"http://127.0.0.1:{port}/health/liveliness", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def wait_for(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until a starting proxy answers; RuntimeError with the end of its log if it ends or takes too long."""

    def answers() -> bool:
        assert process.poll() is None, "it ended"
        try:
            with urllib.request.urlopen(url, timeout=2.0):
                return True
        except (urllib.error.URLError, OSError):
            return False

    try:
        until_blocking(answers, within=START_WITHIN)
    except AssertionError as error:
        raise RuntimeError(f"LiteLLM did not start: {error}\n{log.read_text()[-3000:]}") from None
