"""From one item for each limit to composite items, while servers run.

The older form has an item for each limit of an entity and resource:
    PK ENTITY#{id}   SK #BUCKET#{resource}#{limit}

The way from there:
    1. `begin` sets the table's schema to MIGRATING. Servers that know this schema start. For a key
       that they have not seen, they look for single items first (`fallback.py`). Others refuse to
       start.
    2. `run` goes through the table, and converts what no server has converted yet (`run.py`).
    3. `verify` compares all single items with their composite items (`comparison.py`).
    4. `clean` deletes the single items, and sets the schema back to the present one.

The law of this room: a conversion is one transaction. It puts the composite item, and marks the
single items as converted, if they are as they were seen. So whoever converts, at the same time or
again after a crash, each token is in one place, and is counted once.

    old_items.py    single items, and the composite item that they make; never awaits
    conversion.py   the conversion of one key
    fallback.py     what a server does for keys that it has not seen
    run.py          the whole table: convert, verify, clean up
    comparison.py   what was lost, and what only expired; never awaits
"""
