"""Changes of the tables, in the order of their numbers. A published one is never edited."""
