"""What a Python program imports: `penstock.open` and `penstock.connect` give a `Gate`.

The life of a lease. `Gate.acquire` checks the amounts and asks a `LeasePort` to take them
(`service/leases.py`). With `open`, the port works on a store in this process (`embedded.py`). With
`connect`, the port is a server's, over gRPC (`remote.py`). Both decide by the same code, so the two
forms can't differ in what they answer.

All that a lease writes are errands (`service/errands.py`): they go on if the caller is cancelled.
A cancelled `acquire` waits for the answer in an errand, and gives back what it took. A block that
raises waits until its lease is given back. If the block is cancelled once more, the errand goes on
without the block. Closing the gate waits for all errands.
"""
