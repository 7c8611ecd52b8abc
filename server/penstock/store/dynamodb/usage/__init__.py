"""Usage on DynamoDB: from the table's stream to windows of hours, days and months.

    records.py     a record of the stream: what it says was consumed
    windows.py     a window as an item of the table
    booking.py     sums a batch of records, and writes each window once
    aside.py       records that can't be counted
    shards.py      the shards of a stream, and which of them a worker reads. Never awaits
    claims.py      who reads which shard, and how far: items of the table
    reading.py     one shard, batch by batch
    worker.py      `penstock aggregate`: all shards, beside other workers
    batches.py     the same for a batch that AWS Lambda hands over
    opening.py     connects both to a table
    store.py       the usage port

Every write to a bucket is a record in the stream, with the item before and after. The difference of
their `tc` is what was consumed, and the time of the record is that of the write. So usage costs the
servers nothing.

Why the sums are exact. A stream gives each record at least once, and the records of one item in
their order. A window's item has a marker: the sequence number of the last record that it counts.
A write to a window adds the records behind the marker and moves the marker, with the condition
that the marker is as seen. If the condition fails, the writer goes on from the item that DynamoDB
returns. So a batch may come twice, two workers may read the same shard, and a worker may die at
any moment: no record is counted twice. No record is left out either: a worker moves its checkpoint
only after the windows are written, and reads a shard only after all of the shard's parent is
counted.
"""
