"""Tests of `gateway.manual`."""
