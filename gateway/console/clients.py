"""The programs that people use with the gateway, and how each is set up: for the page Connect and docs/clients.md.

In the texts, `%address%` is the gateway's address without a path, `%url%` the one with `/v1`, `%key%` a key and
`%model%` a model. In a file and in a program each stands for a quoted string, as JSON, TOML, YAML, Python and
JavaScript write it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Place(Struct, frozen=True):
    """Where a client is to send its calls."""

    url: str  # with `/v1`
    key: str
    model: str

    @property
    def address(self) -> str:
        """The address without `/v1`."""
        return self.url.removesuffix("/").removesuffix("/v1")

    @property
    def values(self) -> dict[str, str]:
        """What stands for the names in the texts."""
        return {"%address%": self.address, "%url%": self.url, "%key%": self.key, "%model%": self.model}


class Client(Struct, frozen=True, kw_only=True):
    """A program, and what it has to be told."""

    id: str  # for addresses and tests
    name: str
    api: str  # the path that it calls
    environment: Mapping[str, str] = NOTHING
    settings: Mapping[str, str] = NOTHING  # fields of its window
    file: str = ""  # where `text` belongs
    text: str = ""
    run: str = ""  # a command, with `%model%`
    note: str = ""

    def variables(self, place: Place) -> dict[str, str]:
        """The variables of the environment."""
        return {name: _filled(value, place.values) for name, value in self.environment.items()}

    def fields(self, place: Place) -> dict[str, str]:
        """The fields of its window."""
        return {name: _filled(value, place.values) for name, value in self.settings.items()}

    def content(self, place: Place) -> str:
        """The settings file or program."""
        quoted = {name: json.dumps(value, ensure_ascii=False) for name, value in place.values.items()}
        return _filled(self.text, quoted)

    def commands(self, place: Place) -> str:
        """What a shell has to be told: the variables, and the command."""
        lines = [f"export {name}={shlex.quote(value)}" for name, value in self.variables(place).items()]
        quoted = {name: shlex.quote(value) for name, value in place.values.items()}
        return "\n".join([*lines, *([_filled(self.run, quoted)] if self.run else [])])


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


CLIENTS: Final = (
    Client(
        id="claude-code",
        name="Claude Code",
        api="/v1/messages",
        environment={
            "ANTHROPIC_BASE_URL": "%address%",
            "ANTHROPIC_AUTH_TOKEN": "%key%",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        run="claude --model %model%",
        note="Any model that the account may use. ANTHROPIC_API_KEY works in place of ANTHROPIC_AUTH_TOKEN.",
    ),
    Client(
        id="codex",
        name="Codex",
        api="/v1/responses",
        environment={"GATEWAY_KEY": "%key%"},
        file="~/.codex/config.toml",
        text="""\
model = %model%
model_provider = "gateway"

[model_providers.gateway]
name = "gateway"
base_url = %url%
env_key = "GATEWAY_KEY"
wire_api = "responses"
""",
        run="codex",
    ),
    Client(
        id="gemini-cli",
        name="Gemini CLI",
        api="/v1beta/models/…:streamGenerateContent",
        environment={"GOOGLE_GEMINI_BASE_URL": "%address%", "GEMINI_API_KEY": "%key%"},
        file="~/.gemini/settings.json",
        text='{"security": {"auth": {"selectedType": "gemini-api-key"}}}\n',
        run="gemini --model %model%",
    ),
    Client(
        id="opencode",
        name="opencode",
        api="/v1/chat/completions",
        file="opencode.json",
        text="""\
{
  "provider": {
    "gateway": {
      "npm": "@ai-sdk/openai-compatible",
      "options": {"baseURL": %url%, "apiKey": %key%},
      "models": {%model%: {}}
    }
  }
}
""",
        run="opencode --model gateway/%model%",
    ),
    Client(
        id="aider",
        name="aider",
        api="/v1/chat/completions",
        environment={"OPENAI_API_BASE": "%url%", "OPENAI_API_KEY": "%key%"},
        run="aider --model openai/%model%",
    ),
    Client(
        id="continue",
        name="Continue",
        api="/v1/chat/completions",
        file="~/.continue/config.yaml",
        text="""\
name: gateway
version: 0.0.1
schema: v1
models:
  - name: gateway
    provider: openai
    model: %model%
    apiBase: %url%
    apiKey: %key%
    roles: [chat, edit, apply]
""",
    ),
    Client(
        id="cline",
        name="Cline",
        api="/v1/chat/completions",
        settings={
            "API Provider": "OpenAI Compatible",
            "Base URL": "%url%",
            "OpenAI Compatible API Key": "%key%",
            "Model ID": "%model%",
        },
    ),
    Client(
        id="open-webui",
        name="Open WebUI",
        api="/v1/chat/completions",
        environment={"OPENAI_API_BASE_URL": "%url%", "OPENAI_API_KEY": "%key%"},
        run="open-webui serve",
    ),
    Client(
        id="librechat",
        name="LibreChat",
        api="/v1/chat/completions",
        environment={"GATEWAY_KEY": "%key%"},
        file="librechat.yaml",
        text="""\
version: 1.2.1
endpoints:
  custom:
    - name: gateway
      apiKey: "${GATEWAY_KEY}"
      baseURL: %url%
      models: {default: [%model%], fetch: true}
""",
    ),
    Client(
        id="openai-python",
        name="openai for Python",
        api="/v1/chat/completions, /v1/responses",
        file="hello.py",
        text="""\
# pip install openai
from openai import OpenAI

client = OpenAI(base_url=%url%, api_key=%key%)
answer = client.chat.completions.create(model=%model%, messages=[{"role": "user", "content": "Say hello."}])
print(answer.choices[0].message.content)
""",
    ),
    Client(
        id="openai-node",
        name="openai for Node",
        api="/v1/chat/completions, /v1/responses",
        file="hello.mjs",
        text="""\
// npm install openai
import OpenAI from "openai";

const client = new OpenAI({ baseURL: %url%, apiKey: %key% });
const messages = [{ role: "user", content: "Say hello." }];
const answer = await client.chat.completions.create({ model: %model%, messages });
console.log(answer.choices[0].message.content);
""",
    ),
    Client(
        id="anthropic-python",
        name="anthropic for Python",
        api="/v1/messages",
        file="hello.py",
        text="""\
# pip install anthropic
from anthropic import Anthropic

client = Anthropic(base_url=%address%, api_key=%key%)
messages = [{"role": "user", "content": "Say hello."}]
answer = client.messages.create(model=%model%, max_tokens=100, messages=messages)
print(answer.content[0].text)
""",
    ),
    Client(
        id="anthropic-node",
        name="anthropic for Node",
        api="/v1/messages",
        file="hello.mjs",
        text="""\
// npm install @anthropic-ai/sdk
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: %address%, apiKey: %key% });
const messages = [{ role: "user", content: "Say hello." }];
const answer = await client.messages.create({ model: %model%, max_tokens: 100, messages });
console.log(answer.content[0].text);
""",
    ),
    Client(
        id="google-genai",
        name="google-genai for Python",
        api="/v1beta/models/…:generateContent",
        file="hello.py",
        text="""\
# pip install google-genai
from google import genai

client = genai.Client(api_key=%key%, http_options={"base_url": %address%})
print(client.models.generate_content(model=%model%, contents="Say hello.").text)
""",
    ),
    Client(
        id="langchain",
        name="LangChain",
        api="/v1/chat/completions",
        file="hello.py",
        text="""\
# pip install langchain-openai
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model=%model%, base_url=%url%, api_key=%key%)
print(model.invoke("Say hello.").content)
""",
    ),
    Client(
        id="ai-sdk",
        name="AI SDK",
        api="/v1/responses",
        file="hello.mjs",
        text="""\
// npm install ai @ai-sdk/openai
import { createOpenAI } from "@ai-sdk/openai";
import { generateText } from "ai";

const gateway = createOpenAI({ baseURL: %url%, apiKey: %key% });
const { text } = await generateText({ model: gateway(%model%), prompt: "Say hello." });
console.log(text);
""",
    ),
    Client(
        id="curl",
        name="curl",
        api="/v1/chat/completions",
        environment={"GATEWAY_KEY": "%key%"},
        file="chat.json",
        text='{"model": %model%, "messages": [{"role": "user", "content": "Say hello."}]}\n',
        run='curl %url%/chat/completions -H "Authorization: Bearer $GATEWAY_KEY" \\\n'
        '  -H "Content-Type: application/json" -d @chat.json',
    ),
)
