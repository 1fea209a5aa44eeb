"""Ready commands and programs for a key: curl, Python and Node, for this server and a model that the key may use."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from ipaddress import ip_address

from msgspec import Struct

from gateway.config.settings import ModelSettings, Settings

PROMPT = "Say hello in five words."


class Snippet(Struct, frozen=True):
    """A program in one language."""

    language: str
    text: str


def api_url(settings: Settings, console_host: str) -> str:
    """The address of `/v1`. For a server on all addresses, the host is that of the console."""
    if settings.console.api_url:
        return settings.console.api_url.rstrip("/")
    host = settings.server.host
    with suppress(ValueError):  # of a name
        host = console_host if ip_address(host).is_unspecified else host
    return f"{settings.server.scheme}://{f'[{host}]' if ':' in host else host}:{settings.server.port}/v1"


def snippet_model(models: Mapping[str, ModelSettings], permitted: Collection[str] | None) -> str:
    """A chat model of these that a key with this list may use; empty without one."""
    for name, model in models.items():
        if "chat" in model.endpoints and (permitted is None or name in permitted):
            return name
    return ""


def snippets(url: str, key: str, model: str) -> list[Snippet]:
    """The programs; without a model they list the models."""
    if not model:
        return [Snippet("curl", f"curl {shlex.quote(url + '/models')} \\\n  -H 'Authorization: Bearer {key}'")]
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": PROMPT}]}, ensure_ascii=False)
    curl = (
        f"curl {shlex.quote(url + '/chat/completions')} \\\n  -H 'Authorization: Bearer {key}' \\\n"
        f"  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)}"
    )
    quoted_url, quoted_key, quoted_model, quoted_prompt = map(json.dumps, (url, key, model, PROMPT))
    python = (
        "# pip install openai\nfrom openai import OpenAI\n\n"
        f"client = OpenAI(base_url={quoted_url}, api_key={quoted_key})\n"
        f"answer = client.chat.completions.create(\n    model={quoted_model},\n"
        f'    messages=[{{"role": "user", "content": {quoted_prompt}}}],\n)\nprint(answer.choices[0].message.content)'
    )
    node = (
        '// npm install openai\nimport OpenAI from "openai";\n\n'
        f"const client = new OpenAI({{ baseURL: {quoted_url}, apiKey: {quoted_key} }});\n"
        f"const answer = await client.chat.completions.create({{\n  model: {quoted_model},\n"
        f'  messages: [{{ role: "user", content: {quoted_prompt} }}],\n}});\n'
        "console.log(answer.choices[0].message.content);"
    )
    return [Snippet("curl", curl), Snippet("Python", python), Snippet("Node", node)]
