"""What of a gateway needs an operator: found from cached states, with the time since when, and the newest changes."""
