"""Parameters of requests for JSON: what is wrong is said."""

import pytest
from penstock.console.console import VIEWS
from penstock.console.queries import MOST_ROWS, read_query
from penstock.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("view", "query", "reason"),
    [
        ("top", "by=name", "by: 'name' is not one of requests, denials"),
        ("top", "over=day", "over: 'day' is not one of minute, hour"),
        ("top", "limit=0", f"limit: 0 is not a number from 1 to {MOST_ROWS}"),
        ("top", "limit=ten", "limit: 'ten' is not a whole number"),
        ("top", "limit=-1", "not a whole number"),
        ("top", "of=rule&of=rule", "'of' is given twice"),
        ("overview", "x=1", "unknown parameter 'x', there is none"),
        ("denials", "entity=%1b[31m", r"entity: '\\x1b\[31m' is too long, or no plain text"),
        ("entity", "", "give the parameter 'id'"),
        ("entity", "id=", "give the parameter 'id'"),
        ("entity", "id=" + "x" * 2_000, "is too long"),
        ("usage", "id=a&since_ms=yesterday", "since_ms: 'yesterday' is not a whole number"),
        ("usage", "id=a&window=week", "window: 'week' is not one of hour, day, month"),
        ("rules", "after=x", "after: 'x' is not a whole number"),
        ("audit", "&".join(["limit=1"] * 11), "more than 10 parameters"),
    ],
)
def test_a_wrong_parameter_is_named(view: str, query: str, reason: str) -> None:
    """With what would be right."""
    with pytest.raises(InvalidRequestError, match=reason):
        VIEWS[view].check(read_query(query, VIEWS[view].parameters))


def test_parameters_are_decoded() -> None:
    """As a browser encodes them."""
    query = read_query("id=user%3Dbob%2Cpath%3D%2Fa+b&resource=%24domain%3Ad", ("id", "resource"))
    assert query == {"id": "user=bob,path=/a b", "resource": "$domain:d"}
