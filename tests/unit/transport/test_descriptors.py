"""What the process may open is divided so that connections leave enough for the rest."""

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.errors import ConfigError
from penstock.transport.descriptors import (
    LEAST,
    MAX_GRPC,
    RESERVED,
    WANTED,
    Shares,
    open_files_limit,
    raise_open_files_limit,
    share,
)


@given(limit=st.integers(LEAST, 2 * WANTED), wanted=st.integers(0, 2 * MAX_GRPC))
def test_all_ports_together_leave_what_is_reserved(limit: int, wanted: int) -> None:
    """Whatever the limit is, and whatever is asked for."""
    try:
        shares = share(limit, wanted)
    except ConfigError:
        assert wanted > share(limit).grpc
        return
    assert shares.grpc + shares.http + 2 * shares.other + RESERVED <= limit
    assert min(shares.http, shares.other) >= 16


@pytest.mark.parametrize(
    ("limit", "shares"),
    [
        (1_024, Shares(grpc=480, http=192, other=48)),
        (20_000, Shares(grpc=10_000, http=1_000, other=64)),
        (WANTED, Shares(grpc=10_000, http=1_000, other=64)),
    ],
)
def test_shares_at_usual_limits(limit: int, shares: Shares) -> None:
    """Those of an old shell, of a container, and the most that the server allows itself."""
    assert share(limit) == shares
    assert share(WANTED, 50_000).grpc == 50_000, "more than by default, if it is asked for"


def test_too_few_files_are_refused_with_what_is_needed() -> None:
    """For the server itself, and for the connections that are asked for."""
    with pytest.raises(ConfigError, match=r"may open 511 files, and needs 512: raise the limit"):
        share(511)
    text = r"is 481, but the process may open 1024 files, and that is enough for 480 connections"
    with pytest.raises(ConfigError, match=text):
        share(1_024, 481)
    with pytest.raises(ConfigError, match="that is enough for 960 connections"):
        share(1_024, 961, workers=2)
    assert share(1_024, 960, workers=2).grpc == 480


@given(
    limit=st.integers(LEAST, 2 * WANTED), wanted=st.integers(0, 50_000), workers=st.integers(1, 256)
)
def test_workers_share_the_connections(limit: int, wanted: int, workers: int) -> None:
    """All of them together have what is asked for, and each can open it."""
    try:
        shares = share(limit, wanted, workers)
    except ConfigError:
        assert wanted > workers * share(limit, 1, 1).http
        return
    assert shares.grpc + shares.http + 2 * shares.other + RESERVED <= limit
    if wanted:
        assert 0 <= shares.grpc * workers - wanted < workers
    else:
        assert shares.grpc * workers < MAX_GRPC + workers


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    """As far as it is of use, and never lowered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LEAST, hard))
        raise_open_files_limit()
        most = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
        assert open_files_limit() == most
        raise_open_files_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
