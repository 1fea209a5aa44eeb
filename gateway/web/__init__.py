"""The kit for Tornado request handlers: their base, answers in pieces, turns, counts of windows, tables of paths."""
