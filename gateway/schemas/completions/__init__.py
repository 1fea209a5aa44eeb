"""The body of `POST /v1/completions`: its fields, their rules, and the chat request that it amounts to."""
