"""Entities, stored limits and audit events: the policy port on the same table.

store.py      the port's methods: read, check, and write in one transaction
actions.py    the parts of such a transaction, and their conditions
parents.py    the laws between parents and children
records.py    entities, limits and events: from attributes, and back
listings.py   pages of items, and the deletion of many
"""
