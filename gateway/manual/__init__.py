"""The documentation of the installed version: its files, their HTML, and a search. The console serves it."""
