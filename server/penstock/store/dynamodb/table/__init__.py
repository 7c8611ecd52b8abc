"""The table itself: made, looked at, checked before serving, deleted."""

from penstock.store.dynamodb.table.admin import TableAdmin, check_table

__all__ = ["TableAdmin", "check_table"]
