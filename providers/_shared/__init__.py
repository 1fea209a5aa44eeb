"""What several providers need."""
