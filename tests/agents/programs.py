"""The agents: how each is set up in a home of its own, and how one of its turns runs without a person.

`$GATEWAY_AGENTS` is the folder where `install.py` has put them: `node_modules` and `aider`. The address, the key and
the model reach each agent as the page Connect says; what is added here lets it run without a person.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from gateway.console import clients

INSTALLED = "GATEWAY_AGENTS"
ENDS_WITHIN = 180  # seconds; the slowest turn took 25 on two cores


class Place(Struct, frozen=True):
    """Where an agent works, and with which model."""

    address: str  # of the server, without a path
    key: str
    model: str
    home: Path
    work: Path

    @property
    def config(self) -> Path:
        """The agent's own folder of settings."""
        return self.home / "config"

    @property
    def gateway(self) -> clients.Place:
        """The place as the page Connect writes it."""
        return clients.Place(f"{self.address}/v1", self.key, self.model)


def client(id: str) -> clients.Client:
    """The agent on the page Connect."""
    return next(one for one in clients.CLIENTS if one.id == id)


class Agent(Struct, frozen=True):
    """One agent."""

    name: str
    api: str  # the API that it speaks
    program: str  # below the folder of agents
    set_up: Callable[[Place], Mapping[str, str]]  # writes its settings; returns its environment
    first: Callable[[Place, str], list[str]]  # the arguments of the first turn
    later: Callable[[Place, str], list[str]]  # of a turn that continues the session

    def run(self, place: Place, prompt: str, *, is_first: bool) -> subprocess.CompletedProcess[str]:
        """Run one turn to its end."""
        words = (self.first if is_first else self.later)(place, prompt)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place.home),
            "XDG_CONFIG_HOME": str(place.home / ".config"),
            "XDG_DATA_HOME": str(place.home / ".local"),
            "XDG_CACHE_HOME": str(place.home / ".cache"),
            "TERM": "dumb",
            "NO_COLOR": "1",
            **self.set_up(place),
        }
        return subprocess.run(
            [str(agents_folder() / self.program), *words],
            cwd=place.work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN,
            check=False,
        )


def agents_folder() -> Path:
    """Where the agents are installed."""
    return Path(os.environ[INSTALLED])


def step(agent: Agent, old: str, new: str) -> tuple[str, ...]:
    """The step of a plan that changes a line of `notes.txt`, in the way of the agent."""
    if agent.name == "aider":
        return ("edit", "notes.txt", old, new)
    return ("shell", f"sed -i 's/^{old}$/{new}/' notes.txt")


# Claude Code -------------------------------------------------------------------------------------------------------


def _claude(variable: str) -> Callable[[Place], Mapping[str, str]]:
    def set_up(place: Place) -> Mapping[str, str]:
        shown = dict(client("claude-code").variables(place.gateway))
        key = shown.pop("ANTHROPIC_AUTH_TOKEN")
        return {
            **shown,
            variable: key,
            "CLAUDE_CONFIG_DIR": str(place.config),
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",  # it refuses to skip permissions as root elsewhere
        }

    return set_up


def _claude_first(place: Place, prompt: str) -> list[str]:
    return ["-p", prompt, "--model", place.model, "--dangerously-skip-permissions"]


def _claude_later(place: Place, prompt: str) -> list[str]:
    return [*_claude_first(place, prompt), "--continue"]


# Codex -------------------------------------------------------------------------------------------------------------


def _codex(place: Place) -> Mapping[str, str]:
    place.config.mkdir(exist_ok=True)
    config = client("codex").content(place.gateway) + "\n[analytics]\nenabled = false\n"
    (place.config / "config.toml").write_text(config, encoding="utf-8")
    return {"CODEX_HOME": str(place.config), **client("codex").variables(place.gateway)}


_CODEX_FREE = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]


def _codex_first(place: Place, prompt: str) -> list[str]:
    return ["exec", *_CODEX_FREE, prompt]


def _codex_later(place: Place, prompt: str) -> list[str]:
    return ["exec", "resume", "--last", *_CODEX_FREE, prompt]


# Gemini CLI --------------------------------------------------------------------------------------------------------


def _gemini(place: Place) -> Mapping[str, str]:
    folder = place.home / ".gemini"
    folder.mkdir(exist_ok=True)
    settings = {
        **json.loads(client("gemini-cli").content(place.gateway)),
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    return client("gemini-cli").variables(place.gateway)


def _gemini_first(place: Place, prompt: str) -> list[str]:
    return ["--model", place.model, "--yolo", "--skip-trust", "--prompt", prompt]


def _gemini_later(place: Place, prompt: str) -> list[str]:
    return ["--resume", "latest", *_gemini_first(place, prompt)]


# opencode ----------------------------------------------------------------------------------------------------------


def _opencode(place: Place) -> Mapping[str, str]:
    settings = {
        **json.loads(client("opencode").content(place.gateway)),
        "model": f"gateway/{place.model}",
        "small_model": f"gateway/{place.model}",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"bash": "allow", "edit": "allow"},
    }
    place.config.mkdir(exist_ok=True)
    file = place.config / "opencode.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    return {"OPENCODE_CONFIG": str(file), "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def _opencode_first(place: Place, prompt: str) -> list[str]:
    return ["run", "--model", f"gateway/{place.model}", prompt]


def _opencode_later(place: Place, prompt: str) -> list[str]:
    return ["run", "--continue", "--model", f"gateway/{place.model}", prompt]


# aider -------------------------------------------------------------------------------------------------------------


def _aider(place: Place) -> Mapping[str, str]:
    return {**client("aider").variables(place.gateway), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def _aider_first(place: Place, prompt: str) -> list[str]:
    free = ["--no-git", "--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings"]
    form = ["--edit-format", "diff", "--map-tokens", "0", "--no-detect-urls", "--no-pretty"]
    check = ["--auto-test", "--test-cmd", "sh check.sh"] if (place.work / "check.sh").exists() else []
    return ["--model", f"openai/{place.model}", *free, *form, *check, "--message", prompt, "notes.txt"]


def _aider_later(place: Place, prompt: str) -> list[str]:
    return ["--restore-chat-history", *_aider_first(place, prompt)]


def _bin(name: str) -> str:
    return f"node_modules/.bin/{name}"


AGENTS = (
    Agent("claude-bearer", "messages", _bin("claude"), _claude("ANTHROPIC_AUTH_TOKEN"), _claude_first, _claude_later),
    Agent("claude-x-api-key", "messages", _bin("claude"), _claude("ANTHROPIC_API_KEY"), _claude_first, _claude_later),
    Agent("codex", "responses", _bin("codex"), _codex, _codex_first, _codex_later),
    Agent("gemini", "gemini", _bin("gemini"), _gemini, _gemini_first, _gemini_later),
    Agent("opencode", "chat", _bin("opencode"), _opencode, _opencode_first, _opencode_later),
    Agent("aider", "chat", "aider/bin/aider", _aider, _aider_first, _aider_later),
)
