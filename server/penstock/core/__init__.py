"""The pure core: no await, no clock, no logging, no protobuf, no store.

Time is an argument (`now_ms`), and every result is a value.
"""
