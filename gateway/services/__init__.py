"""The services together, for commands, the admin API and the console."""
