"""Several processes as one server: `--workers N`.

The process that the operator starts is the parent. It answers no calls. It has the front
(`front.py`): HTTP ports, StatsD and signals. Behind the front stands a crew (`crew.py`) with a slot
for each worker (`slot.py`). A slot starts a fresh interpreter (`python -m penstock.workers`), never
a fork: gRPC and SQLite have threads, and a fork copies only one of them. When the worker ends by
itself, the slot starts the next one.

A worker (`worker.py`) is what a server in one process is without the front: it follows the rules
files, opens the store, and answers calls on the gRPC port that all workers share. Rules over xDS
come from the parent, which has the only stream (`rules.py`). A worker obeys the parent alone, over
a unix socket (`channel.py`). It ignores signals: a terminal and systemd send them to all processes,
and the parent knows best what is to be done.

The law of this package: whatever an operator may ask of a server, the answer is that of all workers
together. A worker never outlives its parent: it stops when its end of the channel closes.
"""
