"""Code that several providers share."""
