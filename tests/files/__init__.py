"""Tests of gateway.files."""
