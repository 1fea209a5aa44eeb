"""What a call used, what it costs, and estimates of both."""
