"""The audit: proves accounts by their lines, and the whole store by its accounts."""
