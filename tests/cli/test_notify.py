"""`gateway notify`: the test says what the receiver answered, the list what waits and why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gateway.metrics import Metrics
from gateway.notifications.events import Condition, new_event
from gateway.notifications.queue import Queue
from gateway.notifications.sender import Sender
from gateway.notifications.signatures import signing_key
from tests.cli.conftest import Terminal, on_store
from tests.notifications.receiver import SECRET, verified


class Hook(BaseHTTPRequestHandler):
    """Answers with the status of its server."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.events.append(verified(dict(self.headers.items()), body))  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.events, server.status = [], 200
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def notified(terminal: Terminal, hook: Any, tmp_path: Path) -> Terminal:
    """A terminal whose configuration has the webhook."""
    (tmp_path / "secret").write_text(SECRET)
    url = f"http://127.0.0.1:{hook.server_port}/"
    with terminal.config.open("a") as file:
        file.write(f'\n[notify]\nwebhook = "{url}"\nsecrets = ["file:{tmp_path / "secret"}"]\n')
    return terminal


def test_test_event_is_sent_and_the_answer_shown(notified: Terminal, hook: Any) -> None:
    assert notified.json("notify", "test") == [{"channel": "webhook", "is_taken": True, "answer": "status 200"}]
    assert [(event["type"], event["data"]) for event in hook.events] == [("test", {"message": "This is a test."})]
    hook.status = 503
    failed = notified.run("notify", "test")
    assert (failed.exit_code, "status 503" in failed.stdout) == (1, True)


def test_test_without_a_channel_is_refused(terminal: Terminal) -> None:
    assert "no channel is configured" in terminal.refused("notify", "test")


def test_list_shows_what_waits_and_what_failed_and_retry_queues_it_again(terminal: Terminal, valkey: Path) -> None:
    events = [new_event("balance.low", {"account": "acme"}, account="acme") for _ in range(2)]

    async def fill(store: Any) -> None:
        queue = Queue(store)
        await queue.note([Condition("balance.low", "a", 1, {})], events[0], ["webhook"])
        await Sender(queue, Metrics(), keep=timedelta(days=3)).step()
        await queue.note([Condition("balance.low", "b", 1, {})], events[1], ["mail:ops@example.com"])

    assert terminal.json("notify", "list") == []
    on_store(valkey, fill)
    waiting, failed = terminal.json("notify", "list")
    assert (waiting["event"], waiting["state"], waiting["channel"]) == (events[1].id, "waiting", "mail:ops@example.com")
    assert (failed["event"], failed["state"], failed["attempts"], failed["account"]) == (
        events[0].id,
        "failed",
        1,
        "acme",
    )
    assert failed["problem"] == "the channel is not in the configuration any more"
    assert "no delivery of event" in terminal.refused("notify", "retry", "msg_none")
    assert terminal.json("notify", "retry", events[0].id) == {"queued": 1}
    assert [row["state"] for row in terminal.json("notify", "list")] == ["waiting", "waiting"]


def test_threshold_of_an_account_is_set_shown_and_cleared(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    assert terminal.json("notify", "threshold", "acme") == {"account": "acme", "balance_low": None}
    assert terminal.json("notify", "threshold", "acme", "2.5") == {"account": "acme", "balance_low": "2.5"}
    assert terminal.json("notify", "threshold", "acme")["balance_low"] == "2.5"
    assert "not possible" in terminal.refused("notify", "threshold", "acme", "--", "-1")
    assert "no account" in terminal.refused("notify", "threshold", "nobody", "1")
    terminal.refused("notify", "threshold", "acme", "1", "--clear", status=2)
    assert terminal.json("notify", "threshold", "acme", "--clear")["balance_low"] is None
    assert terminal.json("audit")["mismatches"] == []


def test_new_secret_is_one_that_signs(terminal: Terminal) -> None:
    assert len(signing_key(terminal.ok("notify", "secret").strip())) == 32


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('webhook = "http://192.0.2.1/"', "plain http is possible on this machine only"),
        ('webhook = "ftp://host/"', "expected https://HOST/PATH"),
        ('webhook = "https://user:canary@host/"', "without a user and password"),
        ('webhook = "https://host/"', "messages are signed"),
        ('secrets = ["whsec_canary"]', "not as a literal"),
        ('mail_to = ["ops@example.com"]', "set host in [mail]"),
        ("owners = true", "set host in [mail]"),
        ('events = ["balance.lo"]', "expected one of"),
        ("balance_low = -1", "negative"),
        ("importer_behind = 1", "importer_behind"),
    ],
)
def test_wrong_settings_are_named_by_key_without_secrets(terminal: Terminal, lines: str, message: str) -> None:
    with terminal.config.open("a") as file:
        file.write(f"\n[notify]\n{lines}\n")
    refused = terminal.refused("notify", "list")
    assert "notify." in refused
    assert message in refused
    assert "canary" not in refused


def test_check_finds_a_secret_that_cannot_be_used(notified: Terminal, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    result = notified.run("check")
    assert result.exit_code == 1
    assert "notify.secrets: a secret of a webhook begins with whsec_" in result.output
    assert "canary" not in result.output
