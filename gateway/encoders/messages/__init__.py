"""Encodes answers in Anthropic's dialect: whole ones, streams, usage and errors."""
