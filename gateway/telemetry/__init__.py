"""Traces and metrics by OTLP. Without `[telemetry] endpoint` nothing here is imported but `call_trace`."""
