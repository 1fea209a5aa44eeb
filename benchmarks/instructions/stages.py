"""Which function belongs to which stage of a request.

A line is a pattern for the file, a pattern for the function's qualified name, and a stage; the first line whose two
patterns are found counts. A function without a line belongs to the stage that called it, so what several stages use
(prices, usage, events) is counted where it is used. The patterns hold for the flat layout
(`gateway/accounts/authenticator.py`) and for the one in packages (`gateway/accounts/authenticator.py`). Where a tree
has further names, add them here.
"""

from __future__ import annotations

OUTSIDE = "event loop and the rest"
STAGES = (
    "parse",
    "authenticate",
    "resolve",
    "quote",
    "admit",
    "dispatch",
    "encode",
    "settle",
    "log",
    "pipeline",
    "store client",
    "background",
)

# What each stage is, for the table.
MEANINGS = {
    "parse": "from bytes to a checked request: HTTP, JSON, the rules of the endpoint",
    "authenticate": "the key",
    "resolve": "the model, its targets, the request as each target takes it",
    "quote": "tokens of the prompt, the worst cost",
    "admit": "the hold, the limits, their headers",
    "dispatch": "the choice of a target, the provider, the HTTP client, reading the upstream's answer",
    "encode": "from the provider's answer to bytes for the client, and writing them",
    "settle": "the real cost, the settlement, the journal, the note of a call in flight",
    "log": "the access line, the metrics",
    "pipeline": "what holds the stages together",
    "store client": "commands to Redis and its replies, of admit and settle alike",
    "background": "timers and threads that run beside requests",
    OUTSIDE: "the event loop before it calls the gateway, asyncio's tasks, the interpreter's own work",
}

TABLE = (
    (r"/threading\.py$", "", "background"),
    (r"gateway/(log|metrics)\.py$", "", "log"),
    (r"gateway/", r"\.(access_line|log_access|ended)$", "log"),
    (r"gateway/api/request_log\.py$", "", "log"),
    (r"gateway/(pressure|watchdog|worker|channel|secret_watch)\.py$", "", "background"),
    (
        r"gateway/runtime/|gateway/config/|routing/(health_sharing|circuit_sync)|ledger/(together|gather)",
        "",
        "background",
    ),
    (r"(transport|store)/redis_|gateway/store/|ledger/(batch|script_batcher)\.py$", "", "store client"),
    (r"gateway/auth\.py$|accounts/(authenticator|admission_check)", "", "authenticate"),
    (r"gateway/", r"\._known$", "authenticate"),
    (r"gateway/catalog\.py$", r"^Catalog\.", "resolve"),
    (r"routing/(router|fitting|request_adaptation)\.py$", "", "resolve"),
    (r"gateway/", r"\.find_model$", "resolve"),
    (r"(estimate|token_estimate)\.py$|handlers/terms\.py$|gateway/api/quote\.py$", "", "quote"),
    (r"gateway/(handlers|api|inference)/", r"\.(terms|price|lower|quote|clamp)$", "quote"),
    (r"gateway/ledger/(admission|limits)\.py$", "", "admit"),
    (r"gateway/ledger/", r"^(Ledger\.(admit|hold|extend)|hold_note|reclaim_meta|(ask|group|call)_arguments)$", "admit"),
    (r"gateway/(handlers|api|inference)/", r"\.(admit|_ask)$", "admit"),
    (r"gateway/ledger/|gateway/settlement\.py$|inference/settlement\.py$|billing/settlement\.py$", "", "settle"),
    (r"gateway/running\.py$|inference/(active_calls|call_end)\.py$", "", "settle"),
    (r"gateway/(handlers|api|inference)/", r"\.settle$", "settle"),
    (r"gateway/routing/|http_client|transport/upstream\.py$|gateway_providers/", "", "dispatch"),
    (r"gateway/(caller_headers|text_lane)\.py$|forwarded_headers|plugins/text_fast_path", "", "dispatch"),
    (r"gateway/(shaping|encoders)/|gateway/relay\.py$|text_relay|event_stream|sinks", "", "encode"),
    (r"inference/text_fast_path", "", "encode"),
    (r"(http_exchange|http_outbox|exchange|outbox|write_batch)\.py$", "", "encode"),
    (r"http_(connection|server)", r"\.(push|send\w*|write\w*|flush\w*|answer)$", "encode"),
    (r"gateway/(handlers|api|inference)/", r"\.(deliver|finish_bytes|send_bytes|finish)$", "encode"),
    (r"http_(parser|connection|server|head|remembered_head)|head_cache", "", "parse"),
    (r"gateway/schemas/|gateway/routes\.py$|api/routes\.py$|handlers/body\.py$|json_body", "", "parse"),
    (r"gateway/(handlers|api)/", r"\.(decode|headers_received|data_received)$", "parse"),
    (r"gateway/(handlers|api|inference)/(?!call\.py)", "", "pipeline"),
    (r"gateway/allowance\.py$", "", "pipeline"),
)


def numbered_table() -> list[tuple[str, str, int]]:
    """The table as the probe reads it: stages by number, from 1."""
    return [(file, name, STAGES.index(stage) + 1) for file, name, stage in TABLE]
