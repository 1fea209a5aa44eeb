"""The wire's rules for answers, whatever shape a provider gave them: one module per kind of answer.

A shaper takes what a provider yields, gives the frames a client may see, and counts what was delivered.
"""
