"""What is wrong with the store's configuration, binary or folder, in one line for the operator.

Not part of the GatewayError tree: no caller ever meets it. A store that is set up well but out of reach is
`gateway.errors.StoreUnavailable` instead.
"""


class StoreSetupError(Exception):  # an error is what a caller meets; this is a fault of the set-up
    """The operator has to act; the message is one line and holds no secret."""


class StoreInUse(StoreSetupError):
    """Another gateway process owns this data folder."""
