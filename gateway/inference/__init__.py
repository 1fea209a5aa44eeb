"""The path of a model call between the endpoint and the ledger: call, event stream, settlement, idempotency."""
