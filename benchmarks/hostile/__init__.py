"""One hostile account beside a healthy one: how much longer the healthy one waits, and whether it is served."""
