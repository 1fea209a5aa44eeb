"""Accounts, API keys, authentication, and the check of `gateway explain`."""
