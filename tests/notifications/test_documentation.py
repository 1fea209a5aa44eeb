"""docs/notifications.md and docs/events.schema.json describe the events that the code makes."""

from __future__ import annotations

import json
import re
import time
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.notify_settings import KINDS
from gateway.notifications.account_conditions import DAY, AccountFacts, KeyFacts, account_conditions, key_conditions
from gateway.notifications.events import TEST, Condition, new_event
from gateway.notifications.gateway_watch import _circuit
from gateway.notifications.mailing import INTRODUCTIONS, SUBJECTS, message_of
from gateway.notifications.signatures import new_secret, signed_headers, signing_key
from gateway.routing.circuit_sync import CircuitEvent
from tests.notifications.receiver import SECRET

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "notifications.md").read_text(encoding="utf-8")
SCHEMA = json.loads((DOCS / "events.schema.json").read_text(encoding="utf-8"))
ROW = re.compile(r"^\| `([a-z_.0-9]+)` \| .* \| ([^|]+) \|$", re.MULTILINE)
NOW = 2_000_000_000


def conditions() -> list[Condition]:
    """One of each kind, as the watches make them."""
    account = {"bal": "0", "low": "5", "mcap": "10", "month": "2033-05", "mspent": "10"}
    key = {"state": "active", "name": "ci", "exp": str(NOW + DAY), "created": "0", "cap": "10", "spent": "10"}
    circuits = [_circuit(CircuitEvent("w", "openai", 0, "gpt", cause)) for cause in ("failures", "credential")]
    return [
        *account_conditions(AccountFacts("acme", account), low=0, now=NOW),
        *key_conditions("acme", KeyFacts("key_1", key), now=NOW),
        *(condition for condition in circuits if condition is not None),
        Condition("settlement.set_aside", "m", 1, {"machine": "host", "settlements": 1, "amount": "0.5"}),
        Condition("importer.behind", "importer", 1, {"seconds": 700}),
        Condition(TEST, "", 1, {"message": "This is a test."}),
    ]


def faults(schema: dict[str, Any], value: Any) -> list[str]:
    """What a value violates of the part of JSON schema that the file uses."""
    if "oneOf" in schema:
        found = [faults(one, value) for one in schema["oneOf"]]
        return [] if sum(not one for one in found) == 1 else [f"matches {sum(not one for one in found)} forms"]
    if "const" in schema:
        return [] if value == schema["const"] else ["const"]
    if "enum" in schema:
        return [] if value in schema["enum"] else ["enum"]
    names: dict[str, type[Any]] = {"string": str, "integer": int, "null": type(None), "object": dict, "array": list}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, names[kind]) for kind in kinds):
        return [f"{value!r} is no {kinds}"]
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return [f"{value!r} does not match"]
    if "items" in schema:
        return [fault for one in value for fault in faults(schema["items"], one)]
    if "properties" not in schema:
        return []
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == set(schema["properties"])
    if set(value) != set(schema["properties"]):
        return [f"{set(value)} instead of {set(schema['properties'])}"]
    return [fault for name, part in schema["properties"].items() for fault in faults(part, value[name])]


@pytest.mark.holds("notifications.md#events-1")
def test_events_on_the_page_are_those_of_the_code() -> None:
    rows = {type_: set(re.findall(r"`(\w+)`", fields)) for type_, fields in ROW.findall(PAGE)}
    made = {condition.type: set(condition.data) for condition in conditions() if condition.type != TEST}
    assert rows == made
    assert set(rows) == set(KINDS)


def test_configuration_on_the_page_is_valid() -> None:
    [block] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    notify = parse(tomllib.loads(block, parse_float=Decimal), file="gateway.toml").notify
    assert notify.is_set_up
    assert notify.mail_kinds == {"credential.refused", "settlement.set_aside", "importer.behind"}
    assert notify.owner_kinds == {"balance.low", "balance.exhausted", "key.expiring", "budget.80", "budget.100"}


@pytest.mark.holds("notifications.md#webhook-1")
def test_events_have_the_form_of_the_schema() -> None:
    found = conditions()
    assert {condition.type for condition in found} == {one["properties"]["type"]["const"] for one in SCHEMA["oneOf"]}
    for condition in found:
        document = json.loads(new_event(condition.type, condition.data).body())
        assert faults(SCHEMA, document) == [], condition.type
        assert faults(SCHEMA, {**document, "data": {**document["data"], "more": 1}})


@pytest.mark.parametrize("condition", conditions(), ids=lambda condition: condition.type)
def test_each_event_has_an_email(condition: Condition) -> None:
    assert condition.type in SUBJECTS
    assert condition.type in INTRODUCTIONS
    subject, text = message_of(new_event(condition.type, condition.data))
    assert "{" not in subject + text
    assert all(f"{name}: " in text for name in condition.data)


@pytest.mark.holds("notifications.md#webhook-3")
def test_verification_on_the_page_accepts_messages_and_refuses_others() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    body = b'{"type":"test"}'
    headers = signed_headers([signing_key(new_secret()), signing_key(SECRET)], "msg_1", int(time.time()), body)
    assert scope["verify"](SECRET, headers, body)
    assert not scope["verify"](SECRET, headers, body + b" ")
    assert not scope["verify"](new_secret(), headers, body)
    old = signed_headers([signing_key(SECRET)], "msg_1", int(time.time()) - 600, body)
    assert not scope["verify"](SECRET, old, body)
