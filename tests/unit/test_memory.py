"""Memory goes back to the machine after a peak, with the real C library."""

from penstock.memory import WORTH_BYTES, Memory, find_trim, resident_bytes

MB = 2**20


async def test_what_was_freed_goes_back_to_the_machine() -> None:
    """Small blocks freed below one that is still in use: the C library keeps them by itself."""
    trim = find_trim()
    assert trim is not None, "these tests run on Linux with glibc"
    trim()
    memory = Memory(trim)
    before = resident_bytes()
    blocks = [bytes(4_000) for _ in range(WORTH_BYTES // 2_000)]
    last = bytes(4_000)
    grown = resident_bytes() - before
    assert grown > 100 * MB
    del blocks
    await memory.look()
    assert resident_bytes() - before < grown / 4
    assert len(last) == 4_000


async def test_a_process_that_has_not_grown_is_left_alone() -> None:
    """To give memory back takes time, so it has to be worth it."""
    trimmed = []
    memory = Memory(lambda: trimmed.append(1))
    for _ in range(3):
        await memory.look()
    assert trimmed == []
