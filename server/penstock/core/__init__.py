"""The pure core: no await, no clock, no logging, no protobuf, no store.

Time comes in as an argument (`now_ms`), and what comes out is a value.
"""
