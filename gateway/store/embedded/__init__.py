"""The embedded store server: its binary, data folder and process."""
