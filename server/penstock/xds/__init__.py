"""Rules over xDS, from a control plane such as Envoy Gateway's: `CONFIG_TYPE=GRPC_XDS_SOTW`.

The life of an update: `client.py` keeps one stream open (`transport/ads.py`) and asks for all
rules. A response has the whole state: all resources, one for each domain. `reading.py` makes rules
of the response by the code that reads rules files, in a process of its own if the response is long.
Rules without errors are used, and then the client sends an ACK. Otherwise the client sends a NACK
with all errors, and the rules that are in force stay. If rules can't be read, because a process
fails, the client sends a NACK as well, and asks for the rules again. When a stream ends, the server
decides by the rules that it has, and the client connects again after a pause (`pauses.py`).
`status.py` shows operators what the client does.

The law of this package: an ACK goes out only when the rules are in force. With `--workers`, the
parent has the only stream, and "in force" means in all workers.
"""
