"""The items of the table, of every kind.

keys.py     their keys: escaped, bounded in size, and those of the indexes
images.py   a composite item of buckets: from attributes, and back
access.py   reads items and sends transactions, with the retries that are safe
"""
