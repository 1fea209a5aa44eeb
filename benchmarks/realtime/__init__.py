"""Realtime sessions: memory of silent ones, CPU of talking ones, beside a relay that does nothing else."""
