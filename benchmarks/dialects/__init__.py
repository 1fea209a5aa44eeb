"""What a chunk and a request cost in each dialect of callers, over upstreams of the same and of other dialects."""
