"""Which shards a worker reads: parents before children, and a fair part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.store.dynamodb.usage.shards import Shard, ShardState, Watch, assign, find_ready

FINISHED = ShardState(is_finished=True)


def test_a_child_waits_for_its_parent() -> None:
    """A parent that is gone from the stream is older than its records: nothing waits for it."""
    shards = [Shard("a", "gone"), Shard("b", "a"), Shard("c", "a"), Shard("d", "c")]
    assert find_ready(shards, {}) == shards[:1]
    assert find_ready(shards, {"a": FINISHED}) == shards[1:3]
    assert find_ready(shards, {"a": FINISHED, "c": FINISHED}) == [shards[1], shards[3]]
    assert find_ready(shards, dict.fromkeys("abcd", FINISHED)) == []


@given(st.integers(0, 9), st.integers(1, 4), st.data())
def test_workers_come_to_a_fair_part(count: int, workers: int, data: st.DataObject) -> None:
    """Whoever owned the shards before, in whatever order the workers look."""
    shards = [Shard(f"s{n}", None) for n in range(count)]
    names = [f"w{n}" for n in range(workers)]
    owners = st.sampled_from([None, "dead", *names])
    states = {shard.id: ShardState(data.draw(owners)) for shard in shards}
    for _ in range(3):
        for me in data.draw(st.permutations(names)):
            claimed, released = assign(me, shards, states, names)
            assert not {*claimed} & {*released}
            for shard in released:
                assert states[shard.id].owner == me
                states[shard.id] = ShardState(None)
            for shard in claimed:
                assert states[shard.id].owner in (None, "dead")
                states[shard.id] = ShardState(me)
    owned = [sum(state.owner == name for state in states.values()) for name in names]
    assert sum(owned) == count
    assert max(owned) <= -(-count // workers)


@pytest.mark.parametrize(("beat", "is_alive"), [(1, False), (2, True)])
def test_a_worker_is_alive_while_its_count_goes_up(beat: int, is_alive: bool) -> None:
    """By this worker's own timer; a worker that is seen for the first time counts as alive."""
    watch = Watch(30)
    assert watch.see({"a": 1}, 100) == {"a"}
    assert watch.see({"a": 1}, 129) == {"a"}
    assert watch.proven == set()
    assert watch.see({"a": beat, "b": 1}, 130) == ({"a", "b"} if is_alive else {"b"})
    assert watch.proven == ({"a"} if is_alive else set())
    assert watch.see({}, 131) == set()
