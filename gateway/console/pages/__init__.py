"""The functions of the routes, one module per area; each has its entries of the table."""
