"""Answers requests: uses the core on a store, and knows neither the wire nor the kind of store."""
