"""WebSockets of /v1: the Responses API and the Realtime API (docs/api.md, "Over WebSocket" and "GET /v1/realtime")."""
