"""Configurations: the first one, the one in use, checks, what a machine offers, and those of other gateways."""
