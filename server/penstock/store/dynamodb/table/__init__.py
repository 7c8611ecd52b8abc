"""The table itself: creates, describes, checks and deletes it."""

from penstock.store.dynamodb.table.admin import TableAdmin, check_table

__all__ = ["TableAdmin", "check_table"]
