"""Accounts, their keys, who a caller is, and why a call would be refused."""
