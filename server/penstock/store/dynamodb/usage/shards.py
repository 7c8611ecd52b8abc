"""The shards of a stream, and which of them a worker reads. Never awaits.

A shard ends after some hours, or when its partition splits; its children go on. A child is read
only after all of its parent is counted, because an item's records must be counted in their order.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Shard(NamedTuple):
    id: str
    parent: str | None


class ShardState(NamedTuple):
    """What the table knows of a shard."""

    owner: str | None = None
    sequence: str | None = None
    """The last record that is counted; None: no record is counted yet."""
    is_finished: bool = False


def parse_shard(described: Mapping[str, Any]) -> Shard:
    return Shard(described["ShardId"], described.get("ParentShardId"))


def find_ready(shards: Sequence[Shard], states: Mapping[str, ShardState]) -> list[Shard]:
    """Shards to read now: not finished, and the parent is finished or gone from the stream."""
    listed = {shard.id for shard in shards}

    def is_finished(shard_id: str) -> bool:
        return states.get(shard_id, ShardState()).is_finished

    return [
        shard
        for shard in shards
        if not is_finished(shard.id)
        and (shard.parent is None or shard.parent not in listed or is_finished(shard.parent))
    ]


class Assignment(NamedTuple):
    claimed: tuple[Shard, ...]
    released: tuple[Shard, ...]


def assign(
    me: str, ready: Sequence[Shard], states: Mapping[str, ShardState], workers: Collection[str]
) -> Assignment:
    """Which shards this worker should claim, and which it should leave to others.

    `workers` are those that are alive. Each has an equal part, rounded up. Shards of a worker that
    is not alive are free.
    """
    owners = {shard: states.get(shard.id, ShardState()).owner for shard in ready}
    mine = [shard for shard, owner in owners.items() if owner == me]
    free = [shard for shard, owner in owners.items() if owner is None or owner not in workers]
    part = -(-len(ready) // max(len({*workers, me}), 1))
    return Assignment(tuple(free[: max(part - len(mine), 0)]), tuple(mine[part:]))


class Watch:
    """Tells which workers are alive, by the count that each of them raises again and again.

    Only this worker's own timer counts, so clocks may differ.
    """

    def __init__(self, claim_s: float) -> None:
        self._claim_s = claim_s
        self._seen: dict[str, tuple[int, float]] = {}
        self.proven: set[str] = set()
        """Workers that have raised their count since this worker looks."""

    def see(self, beats: Mapping[str, int], timer_s: float) -> set[str]:
        """The workers that are alive, given all counts that the table has now."""
        for worker, (before, _) in self._seen.items():
            if beats.get(worker, before) != before:
                self.proven.add(worker)
        self._seen = {
            worker: self._seen[worker]
            if worker in self._seen and self._seen[worker][0] == beat
            else (beat, timer_s)
            for worker, beat in beats.items()
        }
        return set(_alive(self._seen, timer_s - self._claim_s))


def _alive(seen: Mapping[str, tuple[int, float]], since_s: float) -> Iterable[str]:
    return (worker for worker, (_, changed_s) in seen.items() if changed_s > since_s)
