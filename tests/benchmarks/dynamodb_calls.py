"""The calls of decisions on busy items, in virtual time, over a model of DynamoDB's table."""

from tests.benchmarks.targets import Target, at_least, at_most
from tests.unit.store.dynamodb.loads import BUSY, CASCADE, FLOOD, LOADS, wcu


def show_calls() -> list[Target]:
    """Print what each load costs. The servers get 500 requests a second each."""
    print("\nDynamoDB, a model of the table, in virtual time: a call takes 5 ms")
    print(f"  {'load':<48} {'writes':>9} {'WCU':>9}  of a decision")
    for name, load in LOADS.items():
        counts = load.run()[-1]
        print(f"  {name:<48} {counts.writes_a_decision:>9.4f} {wcu(counts):>9.4f}")
    busy, cascade, flood = (load.run()[-1] for load in (BUSY, CASCADE, FLOOD))
    transactions = cascade.calls["transaction"]
    without_call = 100 * (1 - flood.calls.total() / flood.denied)
    return [
        at_most("model: 8 x 500/s, 100,000/minute: writes", busy.writes_a_decision, 0.01, "", 4),
        at_most("model: 200 children, 1 server: writes", cascade.writes_a_decision, 1.1, ""),
        at_most("model: 200 children, 1 server: transactions", transactions, 0, "", 0),
        at_least("model: flood, denied without a call", without_call, 99, "%"),
    ]
