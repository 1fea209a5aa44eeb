"""What ends a bench, or one contender's part in it, with one line for the person who runs it."""


class BenchFault(Exception):  # noqa: N818 - a fault of the set-up, as the gateway's StoreFault is
    """The message says what is missing or what went wrong."""
