"""Addresses of servers as users type them."""

import pytest
from penstock.errors import ConfigError
from penstock.transport.client import full_address


@pytest.mark.parametrize(
    ("typed", "full"),
    [
        ("rls.example", "rls.example:8081"),
        ("rls.example:9090", "rls.example:9090"),
        ("127.0.0.1", "127.0.0.1:8081"),
        ("::1", "[::1]:8081"),
        ("[::1]", "[::1]:8081"),
        ("[::1]:9090", "[::1]:9090"),
        ("unix:/run/p.sock", "unix:/run/p.sock"),
        ("dns:///rls.example:1", "dns:///rls.example:1"),
    ],
)
def test_an_address_without_a_port_has_that_of_a_server(typed: str, full: str) -> None:
    """8081, in brackets where the host is IPv6."""
    assert full_address(typed) == full


@pytest.mark.parametrize("typed", ["", "h:", "h:0", "h:65536", "h:x", ":80", "http://h:80", "h/p"])
def test_what_is_no_address_is_refused(typed: str) -> None:
    """Before gRPC looks for it in vain."""
    with pytest.raises(ConfigError, match=r"^--address: "):
        full_address(typed)
