"""Write the Grafana boards beside this file: operator.json, money.json, providers.json.

::

    python conf/boards/build.py

Each panel is a line of a table here: a title, its expressions with their legends, a unit, and what to do about it. The
expressions are those of docs/metrics.md; `$model` and `$provider` are the variables of a board.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH = 24  # columns of a board
HEIGHTS = {"row": 1, "stat": 4, "timeseries": 8, "table": 8}
Panel = dict[str, Any]
Query = tuple[str, str]  # an expression, and the legend of its series


def panel(
    kind: str,
    title: str,
    *queries: Query,
    unit: str = "short",
    width: int = 12,
    about: str = "",
    bad_above: float | None = None,
    stacked: bool = False,
) -> Panel:
    """A panel without its place. `bad_above`: the value above which it is red."""
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if bad_above is not None:
        steps.append({"color": "red", "value": bad_above})
    custom = {"stacking": {"mode": "normal" if stacked else "none"}, "fillOpacity": 20 if stacked else 5}
    return {
        "type": kind,
        "title": title,
        "description": about,
        "datasource": SOURCE,
        "gridPos": {"w": width, "h": HEIGHTS[kind]},
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                **({"custom": custom} if kind == "timeseries" else {}),
            },
            "overrides": [],
        },
        "options": {
            "stat": {
                "colorMode": "value" if bad_above is None else "background",
                "reduceOptions": {"calcs": ["lastNotNull"]},
            },
            "timeseries": {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": {"showLegend": True}},
            "table": {"showHeader": True},
        }[kind],
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
                **({"format": "table", "instant": True} if kind == "table" else {}),
            }
            for at, (expression, legend) in enumerate(queries)
        ],
    }


def row(title: str) -> Panel:
    """A heading."""
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": WIDTH, "h": 1}}


def stat(title: str, expression: str, **rest: Any) -> Panel:
    """A number."""
    return panel("stat", title, (expression, ""), **{"width": 4, **rest})


def series(title: str, *queries: Query, **rest: Any) -> Panel:
    """Lines over time."""
    return panel("timeseries", title, *queries, **rest)


def placed(panels: list[Panel]) -> list[Panel]:
    """The panels with numbers and places, from left to right and top to bottom."""
    x = y = height = 0
    for number, one in enumerate(panels, 1):
        place = one["gridPos"]
        if x + place["w"] > WIDTH:
            x, y, height = 0, y + height, 0
        one["id"] = number
        place["x"], place["y"] = x, y
        x, height = x + place["w"], max(height, place["h"])
    return panels


def variable(name: str, metric: str) -> dict[str, Any]:
    """A choice of label values, by default all."""
    return {
        "type": "query",
        "name": name,
        "label": name.capitalize(),
        "datasource": SOURCE,
        "query": {"query": f"label_values({metric}, {name})", "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def board(uid: str, title: str, variables: list[dict[str, Any]], panels: list[Panel]) -> dict[str, Any]:
    """A board as Grafana imports it."""
    source = {"type": "datasource", "name": "source", "label": "Source", "query": "prometheus"}
    return {
        "uid": f"gateway-{uid}",
        "title": f"Gateway: {title}",
        "tags": ["model-gateway"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [source, *variables]},
        "links": [{"type": "dashboards", "title": "Gateway", "tags": ["model-gateway"], "keepTime": True}],
        "panels": placed(panels),
    }


def quantile(of: float, metric: str, by: str = "") -> str:
    """A quantile over all gateways; `by`: labels, and a choice of them."""
    labels, _, choice = by.partition(" ")
    within = f"{{{choice}}}" if choice else ""
    more = f"{labels}, " if labels else ""
    return f"histogram_quantile({of}, sum by ({more}le) (rate({metric}_bucket{within}[$__rate_interval])))"


def rate(metric: str, by: str = "", choice: str = "") -> str:
    """Events per second."""
    within = f"{{{choice}}}" if choice else ""
    return (
        f"sum by ({by}) (rate({metric}_total{within}[$__rate_interval]))"
        if by
        else (f"sum(rate({metric}_total{within}[$__rate_interval]))")
    )


MODEL = 'model=~"$model"'
PROVIDER = 'provider=~"$provider"'
FAILED = 'outcome!~"ok|client_closed"'

OPERATOR = board(
    "operator",
    "operator",
    [variable("model", "gateway_requests_total")],
    [
        row("Now"),
        stat("Requests per second", rate("gateway_requests"), unit="reqps"),
        stat(
            "Failed or refused",
            f"{rate('gateway_requests', choice=FAILED)} / {rate('gateway_requests')}",
            unit="percentunit",
            bad_above=0.05,
            about="docs/metrics.md: Are customers refused, and why?",
        ),
        stat("First token, 95 %", quantile(0.95, "gateway_first_token_seconds"), unit="s"),
        stat("Calls in progress", "sum(gateway_in_flight)"),
        stat("Workers", "sum(gateway_workers)"),
        stat(
            "Targets that are open",
            "count(max by (provider, model, credential) (gateway_targets_open) > 0) or vector(0)",
            bad_above=1,
            about="docs/runbook.md#gatewayproviderfails",
        ),
        row("Traffic"),
        series(
            "Requests by outcome",
            (rate("gateway_requests", "outcome", MODEL), "{{outcome}}"),
            unit="reqps",
            stacked=True,
        ),
        series(
            "Requests by model", (rate("gateway_requests", "model", MODEL), "{{model}}"), unit="reqps", stacked=True
        ),
        series(
            "Refusals by limit",
            (rate("gateway_limit_refusals", "limit, scope", MODEL), "{{limit}} of {{scope}}"),
            unit="reqps",
        ),
        series("Calls in progress", ("sum by (endpoint) (gateway_in_flight)", "{{endpoint}}"), stacked=True),
        row("Time"),
        series(
            "First token",
            (quantile(0.5, "gateway_first_token_seconds", "model " + MODEL), "{{model}} 50 %"),
            (quantile(0.95, "gateway_first_token_seconds", "model " + MODEL), "{{model}} 95 %"),
            unit="s",
        ),
        series(
            "Duration of requests, 95 %",
            (quantile(0.95, "gateway_request_duration_seconds", "model " + MODEL), "{{model}}"),
            unit="s",
        ),
        series(
            "What the gateway adds to a call",
            (quantile(0.5, "gateway_overhead_seconds"), "50 %"),
            (quantile(0.99, "gateway_overhead_seconds"), "99 %"),
            unit="s",
        ),
        series(
            "Round trips to the store",
            (quantile(0.5, "gateway_store_seconds"), "50 %"),
            (quantile(0.99, "gateway_store_seconds"), "99 %"),
            unit="s",
        ),
        row("Machines"),
        series(
            "Blocked event loops",
            ("sum by (provider) (rate(gateway_loop_stall_seconds_count[$__rate_interval]))", "by {{provider}}"),
            unit="ops",
            about="More than 0.25 s. A provider's name: its code blocks the loop.",
        ),
        series(
            "Connections dropped at the limit",
            (rate("gateway_connections_dropped", "port, kind"), "{{port}} {{kind}}"),
            (rate("gateway_accept_queue_drops"), "queue of new connections"),
            unit="ops",
        ),
        series(
            "Processes that were replaced",
            ("sum(increase(gateway_worker_restarts_total[$__rate_interval]))", "worker"),
            ("sum(increase(gateway_console_restarts_total[$__rate_interval]))", "console"),
            ("sum(increase(gateway_importer_restarts_total[$__rate_interval]))", "importer"),
            ("sum(increase(gateway_store_restarts_total[$__rate_interval]))", "store"),
        ),
        series(
            "Free space of data_dir",
            ("gateway_data_dir_free_bytes / gateway_data_dir_size_bytes", "{{instance}}"),
            unit="percentunit",
        ),
        series(
            "History is behind",
            ("max(gateway_importer_lag_seconds)", "seconds"),
            ("max(gateway_journal_backlog_age_seconds)", "oldest settlement"),
            unit="s",
        ),
        panel(
            "table",
            "Versions and configurations",
            ("sum by (instance, version, python) (gateway_build_info)", ""),
            ("sum by (instance, hash) (gateway_configuration_info)", ""),
            about="Machines with one store should have one hash.",
        ),
    ],
)

MONEY = board(
    "money",
    "money",
    [variable("model", "gateway_cost_total")],
    [
        row("Now"),
        stat("Cost in the last 24 h", "sum(increase(gateway_cost_total[1d]))", unit="currencyUSD"),
        stat(
            "Not collected",
            "sum(rate(gateway_uncollected_total[1h])) / sum(rate(gateway_cost_total[1h]))",
            unit="percentunit",
            bad_above=0.001,
            about="docs/runbook.md#gatewaycostnotcollected",
        ),
        stat(
            "Accounts below their floor",
            'max(gateway_accounts_below{bound="floor"})',
            bad_above=1,
            about="docs/runbook.md#gatewayaccountbelowfloor",
        ),
        stat(
            "Refused settlements",
            "max(gateway_refused_settlements)",
            bad_above=1,
            about="docs/runbook.md#gatewaysettlementsrefused",
        ),
        stat(
            "Oldest settlement that waits",
            "max(gateway_journal_backlog_age_seconds)",
            unit="s",
            bad_above=60,
            about="docs/runbook.md#gatewaysettlementswait",
        ),
        stat(
            "Charged by an estimate",
            'sum(rate(gateway_estimated_calls_total[1h])) / sum(rate(gateway_requests_total{outcome="ok"}[1h]))',
            unit="percentunit",
            bad_above=0.2,
            about="docs/runbook.md#gatewaymanyestimates",
        ),
        row("Earned"),
        series(
            "Cost per hour by model",
            (f"sum by (model) (rate(gateway_cost_total{{{MODEL}}}[$__rate_interval])) * 3600", "{{model}}"),
            unit="currencyUSD",
            stacked=True,
        ),
        series(
            "Spend per hour by group",
            ("sum by (group) (rate(gateway_group_spend_total[$__rate_interval])) * 3600", "{{group}}"),
            unit="currencyUSD",
            stacked=True,
        ),
        series("Tokens per second", (rate("gateway_tokens", "kind", MODEL), "{{kind}}"), unit="short"),
        series(
            "Input that came from a cache",
            (
                f'sum by (model) (rate(gateway_tokens_total{{kind="cached", {MODEL}}}[$__rate_interval]))'
                f' / sum by (model) (rate(gateway_tokens_total{{kind="in", {MODEL}}}[$__rate_interval]))',
                "{{model}}",
            ),
            unit="percentunit",
        ),
        row("Lost or uncertain"),
        series(
            "Not collected per hour",
            (f"sum by (model) (rate(gateway_uncollected_total{{{MODEL}}}[$__rate_interval])) * 3600", "{{model}}"),
            unit="currencyUSD",
        ),
        series(
            "Calls charged by an estimate",
            (
                f"sum by (model) (rate(gateway_estimated_calls_total{{{MODEL}}}[$__rate_interval]))"
                f' / sum by (model) (rate(gateway_requests_total{{outcome="ok", {MODEL}}}[$__rate_interval]))',
                "{{model}}",
            ),
            unit="percentunit",
        ),
        series(
            "Counts of upstreams that were not believed",
            (rate("gateway_clamped_calls", "model, provider", MODEL), "{{model}} at {{provider}}"),
            unit="ops",
        ),
        series(
            "Settlements whose hold was lost",
            (f"sum by (model) (increase(gateway_late_settlements_total{{{MODEL}}}[$__rate_interval]))", "{{model}}"),
        ),
        series(
            "Refused for want of money",
            (rate("gateway_limit_refusals", "limit, scope", 'limit=~"balance|budget|spend"'), "{{limit}} of {{scope}}"),
            unit="reqps",
        ),
        series(
            "Refused because a price cannot be read",
            (rate("gateway_unreadable_price_refusals", "model", MODEL), "{{model}}"),
            unit="reqps",
        ),
    ],
)

SERVED = f'{PROVIDER}, outcome="ok"'
FAILURES = rate("gateway_upstream_errors", choice=PROVIDER)

PROVIDERS = board(
    "providers",
    "providers",
    [variable("provider", "gateway_requests_total")],
    [
        row("Now"),
        stat(
            "Failed attempts",
            f"{FAILURES} / ({FAILURES} + {rate('gateway_requests', choice=SERVED)})",
            unit="percentunit",
            bad_above=0.1,
            about="docs/runbook.md#gatewayproviderfails",
        ),
        stat(
            "Models without a target",
            "count(max by (model) (gateway_models_unavailable) > 0) or vector(0)",
            bad_above=1,
        ),
        stat(
            "Credentials refused",
            'count(max by (provider, credential) (gateway_targets_open{cause=~"credential|credit"}) > 0) or vector(0)',
            bad_above=1,
            about="docs/runbook.md#gatewaycredentialrefused",
        ),
        stat("First token, 95 %", quantile(0.95, "gateway_first_token_seconds", " " + PROVIDER), unit="s"),
        stat("Tasks that hang", "sum(increase(gateway_stuck_tasks_total[1h]))", bad_above=1),
        stat("Cut streams that stayed cut", 'sum(increase(gateway_joins_total{kind="refused"}[1h]))'),
        row("Failures"),
        series(
            "Failed attempts by code",
            (rate("gateway_upstream_errors", "provider, code", PROVIDER), "{{provider}} {{code}}"),
            unit="ops",
            stacked=True,
        ),
        panel(
            "table",
            "Open now, with the cause",
            (f"max by (provider, model, credential, cause) (gateway_targets_open{{{PROVIDER}}}) > 0", ""),
            about="docs/routing.md#health",
        ),
        series(
            "Circuits that opened",
            (
                f"sum by (provider, cause) (increase(gateway_circuit_opened_total{{{PROVIDER}}}[$__rate_interval]))",
                "{{provider}}: {{cause}}",
            ),
        ),
        series("Further attempts", (rate("gateway_extra_attempts", "kind"), "{{kind}}"), unit="ops", stacked=True),
        row("Time"),
        series(
            "First token",
            (quantile(0.5, "gateway_first_token_seconds", "provider " + PROVIDER), "{{provider}} 50 %"),
            (quantile(0.95, "gateway_first_token_seconds", "provider " + PROVIDER), "{{provider}} 95 %"),
            unit="s",
        ),
        series(
            "Between two chunks, 95 %",
            (quantile(0.95, "gateway_inter_chunk_seconds", "provider " + PROVIDER), "{{provider}}"),
            unit="s",
        ),
        series(
            "Hedges that lost",
            (rate("gateway_hedges_lost", "provider", PROVIDER), "{{provider}}"),
            unit="ops",
        ),
        series("Cut streams that were joined", (rate("gateway_joins", "kind"), "{{kind}}"), unit="ops", stacked=True),
    ],
)

BOARDS = {"operator.json": OPERATOR, "money.json": MONEY, "providers.json": PROVIDERS}


def text_of(document: dict[str, Any]) -> str:
    """The file of a board."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, document in BOARDS.items():
        (HERE / name).write_text(text_of(document), encoding="utf-8")
