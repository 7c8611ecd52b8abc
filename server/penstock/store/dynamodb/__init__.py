"""The store on DynamoDB, for when one machine is not enough.

The rooms build on each other:
    aws/        one call to AWS: clients, errors, timeouts, the circuit, clock skew
    items/      the items of the table: keys, attributes, reads and transactions
    buckets/    takes: from the callers that wait to the writes and back
    policy/     entities, stored limits, audit: the policy port
    usage/      what was consumed, from the table's stream: the usage port
    table/      the table itself: create, describe, check, delete
    migration/  from the older form, one item for each limit, while servers run
    store.py    the port's methods; puts the rooms together

The life of a take
------------------
All buckets of one entity and resource are one item, and a take is one conditional write to it. The
write takes what a caller asks for, and its condition makes sure that the caller may have it. So
most decisions cost one call, and no server needs a lock.

1.  `begin` and `take` (store.py) get all takes of a call. `Coordinator` groups them into families:
    an entity with the parents that it cascades to. A family is one write, or one transaction.
    `begin` answers at once if this process holds tokens for the whole call (see below), or if
    recent hints deny the call; so a flood on an empty bucket costs no calls.
2.  The family joins the queue of its root's item (`ItemQueue`). One write for an item is under way
    at a time. Callers that come meanwhile wait, and the next write serves all of them.
    As many items as there are connections have a turn at a time (`aws/turns.py`).
3.  A `Decider` decides for the callers of one turn. It never awaits. It starts from hints, which
    are what this process last saw of the items. A hint may be out of date, so it only chooses the
    next step: a read, or a write.
4.  The `Tally` goes through the callers in order of arrival, on the items as the hints show them.
    The core makes a draft of each take: what it moves, and on which balances this stays true. The
    drafts of admitted callers add up to one `CombinedTake` for each item. Nearly always one caller
    is alone, and its one take fits: then `lone.py` makes the same write without a tally.
5.  The combined take becomes a write (`writes.py`), by what is known of the item:
      `Create`   there is no item, so put it.
      `Consume`  the item was settled a moment ago: only subtract. Other servers can do the same at
                 the same time. Its condition: enough tokens, the same terms, `rf` not too old, and
                 in the current window of each limit that refills at boundaries.
      `Settle`   credit the time since `rf`, bring the item to the terms, and subtract. Its
                 condition: `rf` and the terms are as seen. So no time is credited twice.
      `Upsert`   the item was never seen, so nobody knows whether it exists: consume from it, or
                 create it. If it must be settled first, the condition fails, and shows the item.
6.  `BucketSender` translates the write for DynamoDB (`expressions.py`), as a text in which only the
    values are new (`statements.py`), and sends it through items/ and aws/. The outcomes:
      landed     DynamoDB returns the item after the write. Every caller's draft is made again on
                 the item just before the write, for the balances in its answer.
      lost       A condition failed. DynamoDB returns the item as it is: the decider goes on from
                 this image, with no read in between. Such an image denies a caller, if the take
                 does not fit even with credit. So does a hint that is less than a second old.
      conflict   Another transaction held the item. Nothing is known; the write is sent again.
      an error   Callers get the error, not a denial. If nobody knows whether the write happened,
                 it counts as consumed, and is not repeated. Charges and refunds that surely did not
                 happen are retried: they must land.
7.  The verdicts go back to the queue, which answers the callers, and keeps the images as hints.
8.  The coordinator has the verdicts of all families. If one family refused, the takes of the others
    are undone (`corrections.py`). Charges and refunds of a denied call get a write of their own.

Taking ahead
------------
A hot key would ask the table for every few decisions. So a process that uses an item again and
again takes more with its write than its callers ask for, and answers the next callers from what it
holds, without a call.

-   How much: as much as it used of the item in the last T (`RecentUse`), and never so much that
    less than the same amount is left in the bucket. The write's condition guarantees this. T is a
    hundredth of the time that fills the burst, at most 10 s; `accuracy` in the URL changes T.
-   How long: a `Hold` is used for nine tenths of T. In the last tenth it goes back with the next
    write on the item. After T it goes back with a write of its own (`HoldingSender`, by a timer).
-   One view: a decider sees an item with what this process holds of it, and so do hints. `loans.py`
    translates the decider's write for the table: the write gives back the old hold, and takes the
    new one. Conditions move with it. What DynamoDB returns is translated back (`Held.view`).
-   Cascades (`asking.py`): a parent's part comes from its hold, so a cascade is one write on the
    child. If the child refuses, the part goes back to the hold. If a busy parent has no hold at the
    moment, a write on the parent alone takes one. If the parent is not busy or nearly empty, the
    cascade is a transaction.
-   Why the laws hold: a token that is held was taken from the bucket, so it is used once. This
    happens less than T after it was taken, so any window admits at most the credit over one more T.
    `tc` counts held tokens as consumed until they go back: it is exact when nothing is held.
-   Windows: tokens of a limit that refills at boundaries are used until the next boundary, at most.
    They go back while the item is still in their window. Once another write has settled the item in
    a later window they lapse, and only `tc` is corrected. The same holds for the undo of a take
    (`loans.py`, `back_to`). So no token of one window ever becomes a token of the next.
-   When something fails: a write that nobody knows of holds nothing, and what it would have given
    back counts as consumed. So does what a crashed process held. Both are to the strict side.
-   When a policy changes: nothing is taken ahead while callers, hint and item disagree about the
    terms. What is held goes back under the old terms with the write that brings the new ones. If
    another server was faster, only `tc` is corrected: the change of the burst has already treated
    the tokens as used.

The arithmetic is in `penstock.core`. The top of each file tells its law.
"""

from penstock.store.dynamodb.store import open_dynamodb

__all__ = ["open_dynamodb"]
