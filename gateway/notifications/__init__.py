"""Events for operators and owners of accounts: found off the request path, queued in the store, sent signed."""
