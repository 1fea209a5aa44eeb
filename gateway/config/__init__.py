"""The configuration file: reading, validation, settings, secrets, public prices."""
