"""Where buckets are kept: a port, and one adapter for each kind of store."""
