"""Which requests may cost more in a larger installation."""

from __future__ import annotations

#: Requests whose purpose is to go through everything. They are not sent here.
JOBS = {
    "operator: POST /site/audit": "an audit adds up every line",
    "API: POST /audits": "an audit adds up every line",
}

#: Requests that may cost more, with the reason.
ALLOWED = {
    "operator: GET /accounts/{account}/usage.csv": "an export of all lines, streamed",
    "wide: GET /accounts/{account}/usage.csv": "an export of all lines, streamed",
    "operator: GET /site/reports": "ranks all accounts by what they cost; the page shows the first ones",
    "operator: GET /site/reports.csv": "an export of all rows, with a limit",
    "operator: GET /site/reports.json": "an export of all rows, with a limit",
    "operator: GET /accounts/{account}/sessions": "reads at most the 5,000 newest lines of the account",
    "wide: GET /accounts/{account}/sessions": "reads at most the 5,000 newest lines of the account",
    "API: PATCH /accounts/{account}/limits": "a new cap of a month adds up the calls of the month, once",
    "API: PATCH /accounts/{account}/members/{user}/budget": "a new budget adds up the calls of its period, once",
    "API: POST /imports/keys": "compares the names of all keys of the accounts in the file",
}
