"""For each rule of conf/alerts.yaml: samples with which it fires, and samples with which it does not.

Samples are written as promtool reads them: `0+1x30` is 0, 1, 2 … once a minute, `_` is a scrape without the series.
"""

from __future__ import annotations

from msgspec import Struct

Samples = dict[str, str]


class AlertCase(Struct, frozen=True, kw_only=True):
    """A rule, samples with which it fires after `at`, with these labels, and samples with which it does not."""

    alert: str
    fires: Samples
    quiet: Samples
    labels: dict[str, str] = {}
    at: str = "30m"
    quiet_at: str = ""  # where it is another moment

    @property
    def quiet_after(self) -> str:
        """The moment at which it does not fire."""
        return self.quiet_at or self.at


def _of(machine: int, metric: str, **labels: str) -> str:
    """A series of one machine."""
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f'{metric}{{job="gateway",instance="m{machine}",{text}}}'


OK = {"endpoint": "chat", "model": "m", "provider": "p", "outcome": "ok"}
FAILED = {"model": "m", "provider": "p", "code": "upstream_timeout"}
ONE = {"job": "gateway", "instance": "m1"}
TWO = {"job": "gateway", "instance": "m2"}
CASES = (
    AlertCase(
        alert="GatewayCostNotCollected",
        fires={
            _of(1, "gateway_cost_total", model="m"): "0+1x99",
            _of(1, "gateway_uncollected_total", model="m"): "0+0.01x99",
        },
        quiet={
            _of(1, "gateway_cost_total", model="m"): "0+0x99",
            _of(1, "gateway_uncollected_total", model="m"): "0+0x99",
        },
        at="90m",
    ),
    AlertCase(
        alert="GatewayAccountBelowFloor",
        fires={_of(1, "gateway_accounts_below", bound="floor"): "1x40"},
        quiet={
            _of(1, "gateway_accounts_below", bound="floor"): "0x40",
            _of(1, "gateway_accounts_below", bound="zero"): "5x40",
        },
    ),
    AlertCase(
        alert="GatewaySettlementsRefused",
        fires={_of(1, "gateway_refused_settlements"): "0x20 1x20", _of(2, "gateway_refused_settlements"): "0x40"},
        quiet={_of(1, "gateway_refused_settlements"): "0x40"},
    ),
    AlertCase(
        alert="GatewayManyEstimates",
        fires={
            _of(1, "gateway_requests_total", **OK): "0+10x200",
            _of(1, "gateway_estimated_calls_total", model="m"): "0+5x200",
        },
        quiet={
            _of(1, "gateway_requests_total", **OK): "0+10x200",
            _of(1, "gateway_estimated_calls_total", model="m"): "0+1x200",
        },
        labels={"model": "m"},
        at="150m",
    ),
    AlertCase(
        alert="GatewaySettlementsWait",
        fires={_of(1, "gateway_journal_backlog_age_seconds"): "0+60x40"},
        quiet={_of(1, "gateway_journal_backlog_age_seconds"): "30x40"},
    ),
    AlertCase(  # of a provider that never served, too: its requests with the outcome ok stay at 0, or do not exist
        alert="GatewayProviderFails",
        fires={_of(1, "gateway_upstream_errors_total", **FAILED): "0+6x40"},
        quiet={
            _of(1, "gateway_upstream_errors_total", **FAILED): "0+1x40",
            _of(1, "gateway_requests_total", **OK): "0+60x40",
        },
        labels={"provider": "p"},
    ),
    AlertCase(
        alert="GatewayCredentialRefused",
        fires={_of(1, "gateway_targets_open", provider="p", credential="1", cause="credential"): "1x40"},
        quiet={_of(1, "gateway_targets_open", provider="p", credential="1", cause="limited"): "1x40"},
        labels={"provider": "p", "credential": "1"},
    ),
    AlertCase(
        alert="GatewayModelUnavailable",
        fires={
            _of(1, "gateway_models_unavailable", model="m"): "0x20 2x20",
            _of(1, "gateway_models_unavailable", model="n"): "0x40",
        },
        quiet={_of(1, "gateway_models_unavailable", model="m"): "0x20 2 0x20"},
        labels={"model": "m"},
        quiet_at="21m",
    ),
    AlertCase(
        alert="GatewayRefusesForLoad",
        fires={_of(1, "gateway_limit_refusals_total", model="unknown", limit="load", scope="gateway"): "0+1x40"},
        quiet={_of(1, "gateway_limit_refusals_total", model="m", limit="rpm", scope="key"): "0+1x40"},
    ),
    AlertCase(
        alert="GatewayServerErrors",
        fires={
            _of(1, "gateway_requests_total", **OK): "0+10x40",
            _of(1, "gateway_requests_total", **(OK | {"provider": "", "outcome": "service_unavailable"})): "0+1x40",
        },
        quiet={
            _of(1, "gateway_requests_total", **OK): "0+10x40",
            _of(1, "gateway_requests_total", **(OK | {"provider": "", "outcome": "invalid_value"})): "0+5x40",
            _of(1, "gateway_requests_total", **(OK | {"provider": "", "outcome": "internal_error"})): "0+0x40",
        },
    ),
    AlertCase(
        alert="GatewayDown",
        fires={_of(1, "up"): "1x40", _of(2, "up"): "1x20 0x20"},
        quiet={_of(1, "up"): "1x40", _of(2, "up"): "1x20 0 1x20"},
        labels=TWO,
        quiet_at="21m",
    ),
    AlertCase(
        alert="GatewayStoreUnreachable",
        fires={_of(1, "gateway_store_up"): "1x40", _of(2, "gateway_store_up"): "1x20 0x20"},
        quiet={_of(1, "gateway_store_up"): "1x40", _of(2, "gateway_store_up"): "1x40"},
        labels={"instance": "m2"},
    ),
    AlertCase(
        alert="GatewayStoreSlow",
        fires={
            _of(1, "gateway_store_seconds_bucket", le="0.05"): "0+1x40",
            _of(1, "gateway_store_seconds_bucket", le="0.1"): "0+10x40",
            _of(1, "gateway_store_seconds_bucket", le="+Inf"): "0+10x40",
        },
        quiet={
            _of(1, "gateway_store_seconds_bucket", le="0.05"): "0+10x40",
            _of(1, "gateway_store_seconds_bucket", le="+Inf"): "0+10x40",
        },
    ),
    AlertCase(
        alert="GatewayDiskFills",
        fires={_of(1, "gateway_data_dir_free_bytes"): "14x40", _of(1, "gateway_data_dir_size_bytes"): "100x40"},
        quiet={_of(1, "gateway_data_dir_free_bytes"): "16x40", _of(1, "gateway_data_dir_size_bytes"): "100x40"},
        labels={"instance": "m1"},
    ),
    AlertCase(
        alert="GatewayDiskFull",
        fires={_of(1, "gateway_data_dir_free_bytes"): "4x40", _of(1, "gateway_data_dir_size_bytes"): "100x40"},
        quiet={_of(1, "gateway_data_dir_free_bytes"): "6x40", _of(1, "gateway_data_dir_size_bytes"): "100x40"},
        labels={"instance": "m1"},
    ),
    AlertCase(
        alert="GatewayCertificateExpires",
        fires={_of(1, "gateway_tls_certificate_expiry_timestamp_seconds"): "604800x40"},
        quiet={_of(1, "gateway_tls_certificate_expiry_timestamp_seconds"): "608400x40"},
        labels={"instance": "m1"},
    ),
    AlertCase(
        alert="GatewayCertificateRefused",
        fires={_of(1, "gateway_tls_renewal_refused"): "1x40", _of(2, "gateway_tls_renewal_refused"): "0x40"},
        quiet={_of(1, "gateway_tls_renewal_refused"): "0x40"},
        labels={"instance": "m1"},
    ),
    AlertCase(  # the first restart of a store, which a counter that begins with it would hide
        alert="GatewayProcessesRestart",
        fires={_of(1, "gateway_store_restarts_total"): "0x20 1x20", _of(1, "gateway_worker_restarts_total"): "0x40"},
        quiet={_of(1, "gateway_store_restarts_total"): "0x40", _of(1, "gateway_worker_restarts_total"): "0x20 1x20"},
        labels=ONE,
    ),
    AlertCase(
        alert="GatewayReloadFailed",
        fires={_of(1, "gateway_reload_successful"): "1x10 0x30"},
        quiet={_of(1, "gateway_reload_successful"): "0x10 1x30"},
        labels={"instance": "m1"},
    ),
    AlertCase(
        alert="GatewayCapacityNearlyUsed",
        fires={
            _of(1, "gateway_capacity_used", resource="store_bytes"): "95x40",
            _of(1, "gateway_capacity_limit", resource="store_bytes"): "100x40",
        },
        quiet={  # what has no limit has no series of it
            _of(1, "gateway_capacity_used", resource="store_bytes"): "80x40",
            _of(1, "gateway_capacity_limit", resource="store_bytes"): "100x40",
            _of(1, "gateway_capacity_used", resource="worker_bytes"): "95x40",
        },
        labels={"instance": "m1", "resource": "store_bytes"},
    ),
    AlertCase(
        alert="GatewayConfigurationsDiffer",
        fires={
            _of(1, "gateway_configuration_info", hash="a"): "1x40",
            _of(2, "gateway_configuration_info", hash="b"): "1x40",
        },
        quiet={
            _of(1, "gateway_configuration_info", hash="a"): "1x40",
            _of(2, "gateway_configuration_info", hash="a"): "1x40",
        },
    ),
    AlertCase(
        alert="GatewayDatabaseUnreachable",
        fires={_of(1, "gateway_database_up"): "1x10 0x30"},
        quiet={_of(1, "gateway_database_up"): "1x10 0x2 1x30"},
        labels={"instance": "m1"},
    ),
    AlertCase(
        alert="GatewayImporterBehind",
        fires={_of(1, "gateway_importer_lag_seconds"): "0+60x40"},
        quiet={_of(1, "gateway_importer_lag_seconds"): "5x40"},
    ),
    AlertCase(  # the first fork, which a counter that begins with it would hide
        alert="GatewayImporterBlocked",
        fires={_of(1, "gateway_importer_blocked"): "0x40", _of(1, "gateway_importer_forks_total"): "0x20 1x20"},
        quiet={_of(1, "gateway_importer_blocked"): "0x40", _of(1, "gateway_importer_forks_total"): "3x40"},
        labels=ONE,
    ),
    AlertCase(
        alert="GatewayNotificationsFail",
        fires={_of(1, "gateway_notifications_total", event="test", channel="mail", result="failed"): "0x20 1x20"},
        quiet={
            _of(1, "gateway_notifications_total", event="test", channel="mail", result="failed"): "0x40",
            _of(1, "gateway_notifications_total", event="test", channel="mail", result="sent"): "0+1x40",
        },
        labels={"channel": "mail"},
    ),
)
