"""Tests of `gateway.attention`."""
