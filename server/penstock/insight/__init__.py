"""Who is limited now: the heaviest keys, the last denials, and rates over time.

The limiter notes each decision (`insight.py`) as spots (`spots.py`): the rule, the entity and the
resource of a descriptor, worked out once for each plan. Noted spots wait in a list. Every few
hundred, they are counted together, in sketches of the heaviest keys (`heavy.py`), one for each
question, in panes of time that make up the last minute and the last hour (`windows.py`). A denial
also goes into a ring of the last denials (`denials.py`). Rates over time are differences of
metrics, point by point (`rates.py`).

The laws of this room: it is pure, and time is an argument. Its memory has a bound, whatever clients
send. A count is never too low.
"""
