"""Situations from public reports of other gateways, SDKs and agents, tried on this gateway."""
