"""Takes on bucket items. The page at the door of `penstock.store.dynamodb` tells their life.

From the callers to DynamoDB:
    coordinator.py    one call: several families, all or none
    families.py       an entity's take with those of its parents
    asking.py         asks for one family: from what is held, and from the table
    concurrency.py    work that outlives its caller, and work that is bounded
    queues.py         one write at a time for each item; callers that wait share the next write
    holding.py        sends the writes of a process that holds tokens, and gives tokens back
    sender.py         sends writes and reads, and returns their outcomes
    corrections.py    writes that are no takes: undos, give-backs and resets

What decides, and never awaits:
    asks.py           what a caller asks for, and its verdict
    decider.py        what to read, what to write, who gets what
    knowledge.py      what the decider knows of its items
    hints.py          what this process last saw of items
    tally.py          one pass over the callers: who is admitted
    combined_take.py  what callers take together from one item, and the write for it
    lone.py           the same for the commonest turn, one caller with one take: a shortcut

Taking ahead, which never awaits either:
    recent_use.py     how much this process uses of an item
    hold.py           tokens of one item that this process holds
    held.py           all that is held: answers from it, and what to take ahead
    loans.py          a write for the table, from a write on the item as this process sees it

The writes, as values:
    terms.py          the limits of an item, and what follows from them
    writes.py         the three kinds of write: what must hold, and what they change
    settling.py       makes the write that settles an item
    expressions.py    a write as clauses: what is required, and what is changed
    statements.py     the text of a request from its clauses
"""
