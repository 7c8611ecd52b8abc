"""A request as a row of CSV: one descriptor, with a column for each of its keys.

The columns `time`, `domain`, `hits` and `hits_addend` have a meaning of their own. Every other
column is a key, and its cells are values. An empty cell stands for no entry.
"""

from collections.abc import Sequence
from typing import Final

from penstock.core.limits import UINT32_MAX
from penstock.core.request import Descriptor, Request
from penstock.traffic.json_lines import check_request, check_text, read_count
from penstock.traffic.times import parse_time_ms

TIME, DOMAIN, HITS, HITS_ADDEND = "time", "domain", "hits", "hits_addend"
_OWN: Final = (TIME, DOMAIN, HITS, HITS_ADDEND)


class Columns:
    """The header of a file."""

    def __init__(self, names: Sequence[str], domain: str) -> None:
        """`domain` is for rows without a domain. ValueError if the header can't be used."""
        names = [check_text(name.strip(), "the header") for name in names]
        twice = [name for number, name in enumerate(names) if name in names[:number]]
        if twice:
            raise ValueError(f"the header has the column '{twice[0]}' twice")
        if TIME not in names:
            raise ValueError(f"the header has no column '{TIME}': the first line names the columns")
        if DOMAIN not in names and not domain:
            raise ValueError(f"the header has no column '{DOMAIN}': add one, or give --domain")
        self._count = len(names)
        self._domain = domain
        self._places = {name: number for number, name in enumerate(names) if name in _OWN}
        self._keys = [(number, name) for number, name in enumerate(names) if name not in _OWN]
        if not self._keys or not all(name for _, name in self._keys):
            raise ValueError("the header needs a column for each key, and each needs a name")

    def split(self, cells: Sequence[str]) -> tuple[int, tuple[str, ...]]:
        """The time of a row, and all other cells. `read` reads these. ValueError if it fails."""
        if len(cells) != self._count:
            raise ValueError(f"{len(cells)} cells, but the header has {self._count} columns")
        place = self._places[TIME]
        return parse_time_ms(cells[place].strip()), (*cells[:place], "", *cells[place + 1 :])

    def read(self, cells: Sequence[str]) -> Request:
        """ValueError says what is wrong."""
        entries = tuple(
            [(key, check_text(cells[number], key)) for number, key in self._keys if cells[number]]
        )
        if not entries:
            raise ValueError("the row has no value for any key")
        domain = self._cell(cells, DOMAIN) or self._domain
        hits, addend = self._cell(cells, HITS), self._cell(cells, HITS_ADDEND)
        descriptor = Descriptor(entries, _count(hits, HITS) if hits else None)
        asked = read_count(_count(addend or "0", HITS_ADDEND), HITS_ADDEND, UINT32_MAX)
        return check_request(Request(check_text(domain, DOMAIN), (descriptor,), asked))

    def _cell(self, cells: Sequence[str], name: str) -> str:
        place = self._places.get(name)
        return "" if place is None else cells[place].strip()


def _count(text: str, what: str) -> int:
    digits = text.isascii() and text.isdigit() and len(text) < 25
    return read_count(int(text) if digits else None, what)
