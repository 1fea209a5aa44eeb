"""Tests of gateway.runtime.batches."""
