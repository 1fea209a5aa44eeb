"""What ends a bench, or one contender's part in it, with one line for the person who runs it."""


class BenchFault(Exception):
    """The message says what is missing or what went wrong."""
