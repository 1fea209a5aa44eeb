"""How many long requests a person or token has under way, in the console and the admin API together.

Reports and exports of personal data share the thread of long queries. Imports wait for one another with their files in
memory.
"""

from __future__ import annotations

from gateway.http_server.places import Limit

REPORTS = Limit(
    name="report",
    most=2,
    refusal="You have two reports under way, on pages or as files; wait for one of them, or close it",
    most_of_site=12,
    site_refusal="Others have reports under way; try again in a minute",
)
EXPORTS = Limit(
    name="export",
    most=1,
    refusal="You have an export of personal data under way; wait for it",
    most_of_site=3,
    site_refusal="Others have exports of personal data under way; try again in a minute",
)
IMPORTS = Limit(
    name="import",
    most=1,
    refusal="You have an import under way; wait for it",
    most_of_site=3,
    site_refusal="Others have imports under way; try again in a minute",
)
