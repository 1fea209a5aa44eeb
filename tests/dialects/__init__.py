"""Each dialect of clients over each dialect of upstreams: what arrives, what comes back, what is left out by name."""
