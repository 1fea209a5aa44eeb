"""Files of callers: what they are, where their content is, and when they are deleted."""
