"""The admin API, `/admin/v1`, for programs with an admin token.

::

    ROUTES (table)  →  Router  →  AdminHandler: token, access rule, query, body  →  the route's function  →  services

A route is one entry of a table: method, path, access rule, schemas of query, body and answer, and a function. The
handler, the OpenAPI document and the tests of access derive everything else from it, so that a new route needs nothing
but its entry and its function. The functions hold no rules: `gateway.admin` has them.
"""
