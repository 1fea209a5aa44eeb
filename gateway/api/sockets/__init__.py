"""The Responses API over WebSocket: requests one after the other on one socket (docs/api.md, "Over WebSocket")."""
