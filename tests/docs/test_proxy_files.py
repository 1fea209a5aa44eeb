"""The files of conf/proxies do what their page promises; tests/processes/test_proxy_programs.py runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

CONF = Path(__file__).parents[2] / "conf" / "proxies"
NGINX, HAPROXY, CADDY = (
    (CONF / name).read_text(encoding="utf-8") for name in ("nginx.conf", "haproxy.cfg", "Caddyfile")
)
TRAEFIK = yaml.safe_load((CONF / "traefik-gateway.yaml").read_text(encoding="utf-8"))["http"]
TRAEFIK_MAIN = yaml.safe_load((CONF / "traefik.yaml").read_text(encoding="utf-8"))


def seconds_of(pattern: str, text: str) -> set[int]:
    """The seconds after each match of a pattern."""
    return {int(found) for found in re.findall(rf"{pattern}(\d+)s", text)}


@pytest.mark.holds("operations/proxies.md#reverse-proxies-1")
def test_stopped_gateway_is_left_out_as_the_page_says() -> None:
    assert seconds_of("fail_timeout=", NGINX) == {2}
    assert set(re.findall(r"check inter (\d+)s fall (\d+)", HAPROXY)) == {("1", "2")}
    assert "option httpchk GET /readyz" in HAPROXY
    assert "health_uri /readyz" in CADDY
    assert seconds_of("health_interval ", CADDY) == {1}
    health = TRAEFIK["services"]["api"]["loadBalancer"]["healthCheck"]
    assert (health["path"], health["interval"]) == ("/readyz", "1s")


@pytest.mark.holds("operations/proxies.md#what-a-proxy-must-do-1", "operations/proxies.md#what-a-proxy-must-do-2")
def test_bodies_and_events_are_passed_on_while_they_arrive() -> None:
    assert NGINX.count("proxy_buffering off;") == 2
    assert "proxy_request_buffering off;" in NGINX
    assert "client_max_body_size 0;" in NGINX
    assert "flush_interval -1" in CADDY
    assert "buffer" not in HAPROXY


@pytest.mark.holds("operations/proxies.md#what-a-proxy-must-do-5")
def test_answers_may_take_ten_minutes() -> None:
    assert seconds_of("proxy_(?:read|send)_timeout ", NGINX) == {600}
    assert seconds_of("timeout (?:client|server) ", HAPROXY) == {600}
    timeouts = TRAEFIK_MAIN["entryPoints"]["websecure"]["transport"]["respondingTimeouts"]
    assert timeouts["readTimeout"] == "600s"


@pytest.mark.holds("operations/proxies.md#what-a-proxy-must-do-3")
def test_websocket_is_passed_on() -> None:
    assert "proxy_set_header Upgrade $http_upgrade;" in NGINX
    assert "timeout tunnel 1h" in HAPROXY


@pytest.mark.holds("operations/proxies.md#what-a-proxy-must-do-4")
def test_address_of_the_client_is_added() -> None:
    assert NGINX.count("proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;") == 3
    assert "option forwardfor" in HAPROXY


@pytest.mark.holds("operations/proxies.md#the-console-1")
def test_console_is_shown_on_its_own_host_and_under_a_path() -> None:
    assert "server_name console.example.com;" in NGINX
    assert "location /console {" in NGINX
    assert "req.hdr(host),host_only -i console.example.com" in HAPROXY
    assert "path_beg /console" in HAPROXY
    assert "handle /console*" in CADDY
    assert TRAEFIK["routers"]["console"]["rule"].count("||") == 1


def test_no_call_is_made_twice() -> None:
    assert "non_idempotent" not in NGINX
    assert set(re.findall(r"retry-on (.+?)(?:  |\n)", HAPROXY)) == {"conn-failure"}
