"""Models that providers list themselves: asked for, checked, shared through the store, and served by patterns."""
