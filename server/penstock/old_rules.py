"""Frees rules that are no longer used, in slices."""

from typing import Final

from penstock.core.rules import Rules, all_nodes
from penstock.slices import Slices, free

NODES_A_SLICE: Final = 1_000
"""To visit a node of old rules takes less than 1 µs."""


def free_rules(rules: Rules) -> Slices[None]:
    """Free rules that are no longer used. Each node is held here until its turn comes: without
    that, a node would free all nodes below it at once."""
    held = []
    for number, node in enumerate(all_nodes(rules), start=1):
        held.append(node)
        if number % NODES_A_SLICE == 0:
            yield
    del rules
    held.reverse()  # a node goes before the nodes below it
    yield from free(held)
