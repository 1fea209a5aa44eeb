"""Reports of usage, statements, single calls and lists of calls, and their CSV files."""
