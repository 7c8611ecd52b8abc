"""Keys made from what clients send."""

from hypothesis import given
from hypothesis import strategies as st
from penstock.core.keys import MAX_ENTITY, override_key, rule_key

ENTRIES = st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=3).map(tuple)
Entries = tuple[tuple[str, str], ...]


@given(ENTRIES.filter(bool), ENTRIES.filter(bool))
def test_different_entries_have_different_keys(one: Entries, other: Entries) -> None:
    """No choice of separators in keys and values makes two lists of entries meet."""
    assert (rule_key("d", one) == rule_key("d", other)) == (one == other)


@given(ENTRIES)
def test_a_key_has_no_control_characters(entries: Entries) -> None:
    """A store may end a text at a NUL."""
    for key in (rule_key("a\0b", entries), override_key("a\0b", entries)):
        assert not any(ord(character) < 32 for character in key.entity + key.resource)


def test_a_key_is_readable_where_it_can_be() -> None:
    """An operator who looks into the store sees whose bucket it is."""
    key = rule_key("api", (("user", "bob"), ("path", "/a,b")))
    assert key == ("user=bob,path=/a%2cb", "$domain:api")


def test_a_huge_value_has_a_small_key_of_its_own() -> None:
    """A megabyte makes a short key, and one character more makes another."""
    one, other = (rule_key("d", (("k", "v" * size),)) for size in (1_000_000, 1_000_001))
    assert len(one.entity) < MAX_ENTITY
    assert one != other


def test_an_override_counts_apart_from_the_rule() -> None:
    """Their limits have nothing in common."""
    entries = (("user", "bob"),)
    assert override_key("d", entries) != rule_key("d", entries)


@given(st.text(max_size=9), st.text(max_size=9), st.text(max_size=9), st.text(max_size=9))
def test_a_prefix_keeps_domains_apart(one: str, domain: str, other: str, another: str) -> None:
    """No choice of separators in a prefix and a domain makes two servers meet."""
    entries = (("user", "bob"),)
    is_same = (one, domain) == (other, another)
    for make in (rule_key, override_key):
        assert (make(domain, entries, one) == make(another, entries, other)) == is_same


def test_without_a_prefix_a_key_is_as_ever() -> None:
    """Buckets outlive an update of the server."""
    entries = (("user", "bob"),)
    assert rule_key("api", entries, "") == ("user=bob", "$domain:api")
    assert rule_key("api", entries, "a,b") == ("user=bob", "$domain:a%2cb,api")
    assert override_key("api", entries, "blue") == ("user=bob", "$override:blue,api")
