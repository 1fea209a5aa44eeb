"""Provider answers to wire bytes, by the rules of the wire format: one module per kind of answer.

An encoder takes what a provider yields, returns the frames for the client, and counts what was delivered.
"""
