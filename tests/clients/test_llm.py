"""The `llm` command as a user sets it up: a key, one YAML file of models, and prompts; in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.testing import Reply, RunningGateway
from tests.polling import ENDS_WITHIN

from .independent import RECORD, SENTENCE
from .scripted import TIDE_ANSWER, ScriptedUpstream, completion

pytestmark = pytest.mark.clients

MODEL = """
- model_id: gw-{name}
  model_name: {name}
  api_base: {base_url}
  api_key_name: gw
  supports_tools: true
  supports_schema: true
"""
FUNCTION = """
def tide(port: str) -> str:
    "Height of the tide"
    return f"6 metres at {port}"
"""


class LLM:
    """The command with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.environment = {**os.environ, "LLM_USER_PATH": str(home)}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `llm …`, whatever comes of it."""
        command = [sys.executable, "-m", "llm", *words]
        return subprocess.run(
            command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ENDS_WITHIN
        )

    def ok(self, *words: str) -> str:
        """What it printed, having ended well."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def llm(served: RunningGateway, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """`llm` that knows the gateway's models."""
    home = tmp_path_factory.mktemp("llm")
    models = [MODEL.format(name=name, base_url=served.base_url) for name in ("words", "record", "scripted", "closed")]
    (home / "extra-openai-models.yaml").write_text("".join(models))
    llm = LLM(home)
    llm.ok("keys", "set", "gw", "--value", served.api_key)
    return llm


def test_prompt_is_answered_whole_and_streamed_and_the_usage_of_the_stream_reaches_its_log(llm: LLM) -> None:
    assert llm.ok("-m", "gw-words", "--no-stream", "Hello") == SENTENCE
    assert llm.ok("-m", "gw-words", "Hello") == SENTENCE
    (entry,) = json.loads(llm.ok("logs", "-n", "1", "--json"))
    assert entry["response"] == SENTENCE
    assert entry["output_tokens"] > 0


def test_schema_option_returns_json(llm: LLM) -> None:
    assert json.loads(llm.ok("-m", "gw-record", "--schema", "port, metres int", "What tide?")) == json.loads(RECORD)


def test_python_function_is_called_as_a_tool(llm: LLM, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(TIDE_ANSWER), Reply.json(completion({"content": "Six metres."})))
    assert llm.ok("-m", "gw-scripted", "--no-stream", "--functions", FUNCTION, "What tide?") == "Six metres."
    assert scripted.seen[1].json["messages"][-1]["content"] == "6 metres at Brest"


def test_refusal_is_shown_as_a_message(llm: LLM) -> None:
    done = llm.run("-m", "gw-closed", "Hello")
    assert done.returncode != 0
    assert "Model not permitted" in done.stderr
