"""Lists of names in the store: a page costs what it shows."""
