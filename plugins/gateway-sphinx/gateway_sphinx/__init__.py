"""Transcription by PocketSphinx: `gateway_sphinx.provider` is the plugin.

Nothing is imported here, because the engine's own process passes through this file and needs nothing of the gateway.
"""
