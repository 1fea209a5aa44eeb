"""The bounds within which an upstream's counts are believed (docs/prices.md, "Counts of upstreams").

`bound_usage(usage, bounds, delivered)` returns the usage to charge. It replaces counts outside the bounds; the usage is
then `estimated`. Sharp edge: the new count may be lower or higher than the upstream's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from gateway.billing.usage import Usage

#: How far an upstream's count may exceed the limit of the output: a share of it, and tokens.
ABOVE_LIMIT = 11, 10
TOKENS_ABOVE_LIMIT = 64
#: Tokens that an upstream may add to a prompt; no text has more tokens than bytes.
TOKENS_ABOVE_REQUEST = 4096
#: How much higher than our estimate the count of media may be.
MEDIA_FACTOR = 4
#: How much lower than our count of the delivered part the upstream's count of the output may be.
BELOW_DELIVERED = 4

_IN = ("in_text", "in_cached", "in_cache_write_short", "in_cache_write_long", "in_audio", "in_audio_cached", "in_image")
_OUT = ("out_text", "out_reasoning", "out_audio", "out_image")


#: What was delivered of an answer whose output is not counted in tokens.
NOTHING = Usage()


class Bounds(Struct, frozen=True):
    """The bounds of one request."""

    forwarded: int  # bytes of the request
    media: int = 0  # estimated tokens of its images, audio and documents
    limit: int | None = None  # tokens of output that the upstream may make; None where none is known

    @property
    def most_in(self) -> int:
        """The largest count of input that is believed, in tokens."""
        return self.forwarded + TOKENS_ABOVE_REQUEST + MEDIA_FACTOR * self.media

    @property
    def most_out(self) -> int | None:
        """The largest count of output that is believed, in tokens."""
        limit = self.limit
        return None if limit is None else limit * ABOVE_LIMIT[0] // ABOVE_LIMIT[1] + TOKENS_ABOVE_LIMIT


class Counted(Struct, frozen=True):
    """A usage to charge, and what was wrong with the upstream's counts; empty where nothing was."""

    usage: Usage
    fault: str = ""


def bound_usage(usage: Usage, bounds: Bounds, delivered: Usage) -> Counted:
    """`usage` with its counts brought within the bounds; `delivered` is our own count of the answer."""
    faults = []
    if usage.tokens_in > bounds.most_in:
        faults.append("input above its request")
        usage = _clipped(usage, _IN, bounds.most_in)
    tokens_out, most_out = usage.tokens_out, bounds.most_out
    if most_out is not None and tokens_out > most_out:
        faults.append("output above its limit")
        usage, tokens_out = _clipped(usage, _OUT, bounds.limit or 0), bounds.limit or 0
    if tokens_out * BELOW_DELIVERED < delivered.tokens_out:
        faults.append("output below what was delivered")
        usage = with_output_of(usage, delivered)
    if not faults:
        return Counted(usage)
    return Counted(structs.replace(usage, estimated=True), ", ".join(faults))


def with_output_of(usage: Usage, delivered: Usage) -> Usage:
    """The input of `usage` with the output of `delivered`."""
    return structs.replace(usage, estimated=True, **{name: getattr(delivered, name) for name in _OUT})


def _clipped(usage: Usage, buckets: Sequence[str], most: int) -> Usage:
    """`usage` with at most `most` tokens in these buckets; each keeps its share, the largest gets the remainder."""
    counts = {name: getattr(usage, name) for name in buckets}
    total = sum(counts.values())
    clipped = {name: count * most // total for name, count in counts.items()}
    largest = max(counts, key=counts.__getitem__)
    clipped[largest] += most - sum(clipped.values())
    return structs.replace(usage, **clipped)
