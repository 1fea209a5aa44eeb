"""The table of all metrics: names, kinds, texts, labels and buckets."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
FIRST_TOKEN = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
INTER_CHUNK = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
OVERHEAD = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
STALL = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STORE = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)

#: Codes of closed WebSockets that have a series of their own; a client may send any other one.
CLOSE_CODES = frozenset({1000, 1001, 1002, 1003, 1005, 1006, 1007, 1008, 1009, 1011, 1013, 4008})


class MetricSpec(Struct, frozen=True):
    """One metric. `name` has no `_total`; `buckets` are the upper bounds of a histogram.

    `total` says how the gauges of several processes become one: their sum, or the largest of them.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    total: Literal["sum", "max"] = "sum"


METRICS = (
    MetricSpec("gateway_requests", "counter", "Finished requests", ("endpoint", "model", "provider", "outcome")),
    MetricSpec(
        "gateway_request_duration_seconds",
        "histogram",
        "Time from the request to the last byte",
        ("endpoint", "model"),
        LATENCY,
    ),
    MetricSpec(
        "gateway_first_token_seconds",
        "histogram",
        "Time from the request to the first streamed content",
        ("model", "provider"),
        FIRST_TOKEN,
    ),
    MetricSpec(
        "gateway_inter_chunk_seconds",
        "histogram",
        "Mean gap between a stream's chunks",
        ("model", "provider"),
        INTER_CHUNK,
    ),
    MetricSpec(
        "gateway_overhead_seconds",
        "histogram",
        "Time of a request outside the upstream call",
        ("endpoint",),
        OVERHEAD,
    ),
    MetricSpec("gateway_limit_refusals", "counter", "Requests that a limit refused", ("model", "limit", "scope")),
    MetricSpec(
        "gateway_unreadable_price_refusals",
        "counter",
        "Requests refused because the own price of their account cannot be read",
        ("model",),
    ),
    MetricSpec("gateway_tokens", "counter", "Billed tokens; kind is in, out or cached", ("model", "kind")),
    MetricSpec("gateway_cost", "counter", "Cost of the calls, in currency units", ("model",)),
    MetricSpec(
        "gateway_uncollected",
        "counter",
        "Part of the cost that the accounts could not pay, in currency units",
        ("model",),
    ),
    MetricSpec("gateway_late_settlements", "counter", "Settlements whose hold was lost by the store", ("model",)),
    MetricSpec("gateway_estimated_calls", "counter", "Calls that were charged by an estimate", ("model",)),
    MetricSpec(
        "gateway_clamped_calls",
        "counter",
        "Calls whose upstream counted outside the bounds within which counts are believed",
        ("model", "provider"),
    ),
    MetricSpec(
        "gateway_group_spend",
        "counter",
        "What the accounts of a group were charged, in currency units",
        ("group",),
    ),
    MetricSpec(
        "gateway_accounts_below",
        "gauge",
        "Accounts whose balance is below zero, or below their floor",
        ("bound",),
        total="max",
    ),
    MetricSpec("gateway_journal_backlog_records", "gauge", "Settlements in journals that the store has not confirmed"),
    MetricSpec("gateway_journal_backlog_bytes", "gauge", "Size of the journal files with such settlements"),
    MetricSpec(
        "gateway_journal_backlog_age_seconds", "gauge", "Age of the oldest settlement of these files", total="max"
    ),
    MetricSpec(
        "gateway_refused_settlements", "gauge", "Settlements in refused.jsonl, which the store refused", total="max"
    ),
    MetricSpec("gateway_in_flight", "gauge", "Requests in progress", ("endpoint",)),
    MetricSpec("gateway_websockets", "gauge", "Open WebSockets of /v1"),
    MetricSpec("gateway_websockets_closed", "counter", "Closed WebSockets of /v1, by the code of the close", ("code",)),
    MetricSpec("gateway_store_seconds", "histogram", "Round trips to Redis", (), STORE),
    MetricSpec("gateway_upstream_errors", "counter", "Failed attempts at a target", ("model", "provider", "code")),
    MetricSpec(
        "gateway_extra_attempts",
        "counter",
        "Attempts after the first one of a call; kind is retry, fallback, hedge or continuation",
        ("model", "kind"),
    ),
    MetricSpec(
        "gateway_joins",
        "counter",
        "Cut streams that another target was asked to finish; kind is prefill, overlap, restart or refused",
        ("model", "kind"),
    ),
    MetricSpec(
        "gateway_hedges_lost",
        "counter",
        "Attempts cancelled because another attempt answered first",
        ("model", "provider"),
    ),
    MetricSpec(
        "gateway_circuit_opened",
        "counter",
        "Times the circuit of a target, credential or provider opened",
        ("model", "provider", "cause"),
    ),
    MetricSpec(
        "gateway_targets_open",
        "gauge",
        "Workers whose circuit for a target, credential or provider is open",
        ("model", "provider", "credential", "cause"),
    ),
    MetricSpec(
        "gateway_loop_stall_seconds",
        "histogram",
        "Time that a worker's event loop was blocked, by the provider whose code blocked it",
        ("provider",),
        STALL,
    ),
    MetricSpec(
        "gateway_stuck_tasks",
        "counter",
        "Tasks of a provider that did not end 5 s after they were cancelled",
        ("provider",),
    ),
    MetricSpec(
        "gateway_hook_records_lost",
        "counter",
        "Records of calls that a plugin did not get because its `call_settled` hook is too slow",
        ("plugin",),
    ),
    MetricSpec(
        "gateway_hook_runs",
        "counter",
        "Runs of asynchronous hooks, and runs that were not begun, by what they do and by their outcome",
        ("hook", "kind", "outcome"),
    ),
    MetricSpec(
        "gateway_hook_seconds",
        "histogram",
        "Time of a run of an asynchronous hook",
        ("hook",),
        (*STORE, 0.5, 1.0, 2.5, 5.0),
    ),
    MetricSpec("gateway_traces_lost", "counter", "Traced calls whose spans no collector took"),
    MetricSpec("gateway_log_lines_dropped", "counter", "Lines of the log that were dropped because nobody read it"),
    MetricSpec(
        "gateway_connections_dropped",
        "counter",
        "Client connections closed or refused at the limit; kind is idle, unfinished or refused",
        ("port", "kind"),
    ),
    MetricSpec(
        "gateway_accept_queue_drops",
        "counter",
        "Attempts to connect to /v1 that the system dropped because a worker's queue of new connections was full",
    ),
    MetricSpec(
        "gateway_tls_certificate_expiry_timestamp_seconds",
        "gauge",
        "End of the certificate of the ports that is in force, in Unix time; absent without TLS",
        total="max",
    ),
    MetricSpec(
        "gateway_tls_renewal_refused",
        "gauge",
        "1 while the files have a certificate that cannot be used, so that the one of before stays in force",
        total="max",
    ),
    MetricSpec("gateway_worker_restarts", "counter", "Workers that ended and were started again"),
    MetricSpec("gateway_store_restarts", "counter", "Embedded store processes that ended and were started again"),
    MetricSpec("gateway_console_restarts", "counter", "Console processes that ended and were started again"),
    MetricSpec("gateway_importer_restarts", "counter", "Importer processes that ended and were started again"),
    MetricSpec("gateway_batches_restarts", "counter", "Processes of batches that ended and were started again"),
    MetricSpec("gateway_batches_open", "gauge", "Batches of this machine that have not ended", total="max"),
    MetricSpec(
        "gateway_batches_ended",
        "counter",
        "Batches that ended; status is completed, failed, expired or cancelled",
        ("status",),
    ),
    MetricSpec(
        "gateway_batch_lines",
        "counter",
        "Lines of batches; result is completed, failed, or retried for a call that is made again",
        ("result",),
    ),
    MetricSpec(
        "gateway_emails", "counter", "E-mails by whether the mail server took them: sent or failed", ("result",)
    ),
    MetricSpec("gateway_importer_lines", "counter", "Ledger lines copied into the database"),
    MetricSpec("gateway_importer_lag_seconds", "gauge", "Time since the database last had all lines known to be new"),
    MetricSpec("gateway_importer_lag_lines", "gauge", "Ledger lines that are known to be missing in the database"),
    MetricSpec("gateway_importer_failures", "counter", "Attempts of the importer that failed", ("cause",)),
    MetricSpec("gateway_importer_blocked", "gauge", "Accounts whose lines cannot be imported"),
    MetricSpec("gateway_importer_forks", "counter", "Accounts whose last lines the store had lost"),
    MetricSpec("gateway_importer_trimmed", "counter", "Ledger lines removed from the store"),
    MetricSpec(
        "gateway_notifications",
        "counter",
        "Attempts to deliver an event; result is sent, retried, failed or dropped",
        ("event", "channel", "result"),
    ),
    MetricSpec("gateway_notifications_waiting", "gauge", "Deliveries of events that are not done yet", total="max"),
    MetricSpec(
        "gateway_models_unavailable",
        "gauge",
        "Workers in which every target of a model is open or cannot be created",
        ("model",),
    ),
    MetricSpec(
        "gateway_discovered_models",
        "gauge",
        "Models in a provider's own list that are served, and by reason those that are not",
        ("provider", "reason"),
        total="max",
    ),
    MetricSpec(
        "gateway_discovery_last_success_timestamp_seconds",
        "gauge",
        "Unix time of the last good list of a provider; 0 without one",
        ("provider",),
        total="max",
    ),
    MetricSpec(
        "gateway_discovery_questions",
        "counter",
        "Questions for the list of a provider; result is ok or failed",
        ("provider", "result"),
    ),
    MetricSpec("gateway_upstream_calls", "gauge", "Calls in progress at a provider", ("provider",)),
    MetricSpec(
        "gateway_capacity_used",
        "gauge",
        "What is in use of a resource that has a limit",
        ("resource",),
    ),
    MetricSpec("gateway_capacity_limit", "gauge", "The limit of a resource", ("resource",)),
    MetricSpec("gateway_process_cpu_seconds", "counter", "Processor time of a process", ("process",)),
    MetricSpec("gateway_process_resident_bytes", "gauge", "Resident memory of a process", ("process",)),
    MetricSpec("gateway_process_descriptors", "gauge", "Open file descriptors of a process", ("process",)),
    MetricSpec("gateway_process_descriptors_limit", "gauge", "Their limit", ("process",)),
    MetricSpec("gateway_process_loop_lag_seconds", "gauge", "How late the event loop of a process is", ("process",)),
    MetricSpec("gateway_store_errors", "counter", "Commands to the store that failed, by their fate", ("fate",)),
    MetricSpec("gateway_reloads", "counter", "Reloads of the configuration by their result", ("result",)),
    MetricSpec("gateway_reload_successful", "gauge", "1 if the last reload is in use, else 0", total="max"),
    MetricSpec("gateway_store_up", "gauge", "1 while the store answers and takes writes", total="max"),
    MetricSpec("gateway_database_up", "gauge", "1 while the importer can use the database", total="max"),
    MetricSpec("gateway_data_dir_free_bytes", "gauge", "Free space on the file system of data_dir", total="max"),
    MetricSpec("gateway_data_dir_size_bytes", "gauge", "Size of the file system of data_dir", total="max"),
    MetricSpec(
        "gateway_configuration_info",
        "gauge",
        "Always 1; the label names the configuration in use",
        ("hash",),
        total="max",
    ),
    MetricSpec("gateway_workers", "gauge", "Workers that serve requests"),
    MetricSpec(
        "gateway_build_info", "gauge", "Always 1; the labels give the versions", ("version", "python"), total="max"
    ),
)
