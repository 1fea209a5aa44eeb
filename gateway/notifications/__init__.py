"""Events that operators and owners are told of: found off the request path, queued in the store, sent signed."""
