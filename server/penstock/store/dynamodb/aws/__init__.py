"""One call to AWS. This room knows calls, and nothing of items or buckets.

    location.py     the table's URL, and a client of the SDK for it
    client.py       the port: every call of a serving store leaves through it
    clients.py      who makes which calls: opens the clients of a store
    sdk.py          the port on the AWS SDK, and what the SDK's exceptions mean
    lean.py         the port's fast calls without the SDK. It builds on:
      endpoint.py         where and how the SDK would reach DynamoDB
      credentials.py      the keys, refreshed beside the calls
      signing.py          the signature of a request
      pool.py             open connections
      http_connection.py  one request and its answer
      answers.py          what an answer says
    errors.py       what an error of AWS means: one table for every client
    connection.py   a call through the port: bounded in time, counted, skipped in an outage
    turns.py        who calls at the moment, and who waits
    circuit.py      when an outage begins, and when it is over
    skew.py         this server's clock against DynamoDB's
    streams.py      the calls on the table's stream, by the SDK
    retry.py        the delays between retries

The SDK's clients come from `penstock.aws_session`, which makes them verify TLS.
Nothing here retries: only who knows what a call does can tell whether the call is safe to repeat.
`lean.py` sends a call again only if AWS refused its signature.
"""
