"""The table itself: creates, describes, checks and deletes it.

admin.py    the commands on the table, and the check before serving
jobs.py     what a command does, one step at a time
calls.py    single calls about the table
state.py    the table as AWS describes it, and what is missing
report.py   the table in words for the operator
schema.py   keys, indexes and extras: the table as it should be
"""

from penstock.store.dynamodb.table.admin import TableAdmin, check_table

__all__ = ["TableAdmin", "check_table"]
