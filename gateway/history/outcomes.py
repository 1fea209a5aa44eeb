"""Which ends of calls are no errors: the one definition for reports, pages and the performance of targets.

An outcome is `ok`, the code of an error, or one of a few other ends of a call.
"""

from __future__ import annotations

from gateway.ledger.line_meta import ABANDONED

#: The caller got an answer, or left before its beginning or end. Lines of old versions have no outcome.
NO_ERRORS = ("ok", "client_closed", "replayed", ABANDONED, "")
