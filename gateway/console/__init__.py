"""The console: web pages for members, owners, viewers and operators, on the port of the admin API.

::

    ROUTES (table)  →  PageHandler: session, audience, XSRF token, form  →  the route's function  →  services
                    ←  View (template), Redirect or Download  ←

A route is one entry of a table: method, path, audience and function. The handler, the navigation and the tests of
access derive everything else from it. The functions hold no rules: `gateway.admin` has them. Pages work without a
script; scripts add partial updates, charts and times in the reader's zone.
"""
