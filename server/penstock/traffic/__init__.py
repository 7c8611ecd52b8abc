"""Traffic: requests on file, recorded by servers and replayed under other limits.

A trace is a file of requests with their times. (The traces of `telemetry/` are something else: the
spans of one request.) `json_lines.py` and `csv_rows.py` know the two formats, `times.py` the forms
of a time. `reading.py` reads files of either format as one stream in the order of time.

A server with `--record-trace` has a recorder (`recorder.py`). The recorder keeps what was asked in
a bounded queue, and writes the queue to files of a bounded size (`segments.py`), beside the path of
the answers. What does not fit is lost and counted. `hashing.py` hides values.

`penstock simulate` plays a stream to one or two policies (`simulation.py`). Each policy is a side
(`side.py`) with a replay (`replay.py`): the limiter of the service and a store in memory, as a
server has, and a clock that shows the times of the trace. With two policies, the policy in force
has a process of its own (`apart.py`). A tally (`tally.py`) counts the answers of a policy,
`timeline.py` counts them over time, and `comparison.py` tells for whom two policies differ.

The law of this package: nothing here decides. The service decides, as it does in a server.
"""
