"""A refund through a cascade reaches every level, whatever a server remembers of a level."""

from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take

from tests.support.tables import new_table, open_on

NOW = 1_794_792_780_000
DAY = 86_400_000
TEN = Limit.per(10, DAY)
USER, RIVAL, TEAM = (Key(name, "model") for name in ("user", "rival", "team"))


def chain(user: Key, tokens: int, mode: Mode = Mode.TAKE) -> list[Take]:
    draws = (Draw(0, tokens * MILLI, mode),)
    return [Take(user, (TEN,), draws, TEAM), Take(TEAM, (TEN,), draws)]


async def test_refund_reaches_a_level_that_looked_full_a_moment_ago(dynamodb_url: str) -> None:
    """Another server took from it since. To leave the level out would be half of a cascade."""
    async with (
        new_table(dynamodb_url) as location,
        open_on(location) as server,
        open_on(location) as other,
    ):
        # The server sees the user full again, and the team in use by somebody else.
        await server.take(chain(USER, 3), NOW)
        await server.take(chain(USER, 3, Mode.REFUND), NOW)
        await server.take(chain(RIVAL, 2), NOW)
        await other.take(chain(USER, 3), NOW)
        await server.take(chain(USER, 3, Mode.REFUND), NOW)
        items = [await other.read(key) for key in (USER, RIVAL, TEAM)]

    consumed = [item.buckets[0].consumed // MILLI for item in items if item is not None]
    assert consumed == [0, 2, 2]
