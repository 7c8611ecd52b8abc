"""The console: a page on the debug port, and the JSON that the page is made of.

A request for JSON comes in over HTTP (`transport/http_console.py`), which asks whether the client
may see it (`access.py`). The front finds the view (`console.py`, a table of all views), reads the
query (`queries.py`), and has the view read in the processes that answer calls: in one of them if it
is about the store (`store_views.py`), in all of them if it is about counts (`count_views.py`).
Then the front makes one answer of their parts. `values.py` has the forms that limits, entities and
audit events have in JSON, and `conceal.py` what is shown instead of names that may be secrets.

The law of this room: it reads, and changes nothing.
"""
