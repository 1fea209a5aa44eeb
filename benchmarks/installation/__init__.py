"""The cost of pages, routes, commands and jobs as an installation grows: `python -m benchmarks installation`."""
