"""The routes by resource: each module has its schemas, its functions and its part of the table."""
