"""Faults of the store's configuration, binary or folder, as one line for the operator.

They are not part of the GatewayError tree, because callers never get them. An unreachable store is
`gateway.errors.StoreUnavailable`.
"""


class StoreSetupError(Exception):  # an error is sent to a caller; this is a fault of the set-up
    """The operator has to act; the message is one line and holds no secret."""


class StoreInUse(StoreSetupError):
    """Another gateway process owns this data folder."""
