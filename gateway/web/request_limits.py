"""How many long requests a person or token has under way, in the console and the admin API together.

Reports, statements, lists of the dearest calls and exports of personal data share the thread of long queries. Imports
wait for one another with their files in memory. The running calls are asked of all workers and machines, and checks of
the configuration load plugins.
"""

from __future__ import annotations

from gateway.web.places import Limit

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
SEARCHES = Limit(
    name="search",
    most=2,
    refusal="You have two lists by cost or duration under way; wait for one of them, or close it",
    most_of_site=12,
    site_refusal="Others have lists by cost or duration under way; try again in a minute",
)
RUNNING = Limit(
    name="running calls",
    most=4,
    refusal="You have four lists of running calls under way; wait for one of them, or close it",
    most_of_site=16,
    site_refusal="Others have lists of running calls under way; try again in a few seconds",
)
CANCELLATIONS = Limit(
    name="cancellation",
    most=4,
    refusal="You have four cancellations under way; wait for one of them",
)
CHECKS = Limit(
    name="check",
    most=2,
    refusal="You have two checks of the configuration or the plugins under way; wait for one of them",
    most_of_site=6,
    site_refusal="Others have checks of the configuration or the plugins under way; try again in a minute",
)
NEAREST = Limit(name="nearest", most=1, refusal="", most_of_site=4)  # comparisons with all names; left out beyond it
