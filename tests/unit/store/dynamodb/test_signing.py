"""Signatures: those of the AWS SDK, for whatever is signed."""

import datetime
from collections.abc import Iterator

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from penstock.store.dynamodb.aws.signing import CONTENT_TYPE, Keys, Signer, UnfitKeysError

PRINTABLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
HOSTS = ["dynamodb.eu-west-1.amazonaws.com", "127.0.0.1:8000", "[::1]:8000", "localhost"]
DAYS = 47_000  # until the year 2098
DAY_MS = 86_400_000

keys = st.builds(
    Keys,
    st.text(PRINTABLE, min_size=1, max_size=40),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.none() | st.text(PRINTABLE, max_size=1_000),
)
times_ms = st.integers(0, DAYS * DAY_MS) | st.builds(
    lambda day, near_ms: day * DAY_MS + near_ms, st.integers(1, DAYS), st.integers(-1_001, 1_001)
)


class FrozenClock:
    """Stands in for the SDK's reading of the clock."""

    now_s = 0.0

    def __call__(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.now_s, datetime.UTC)


@pytest.fixture(scope="module")
def sdk_clock() -> Iterator[FrozenClock]:
    with pytest.MonkeyPatch.context() as patch:
        clock = FrozenClock()
        patch.setattr("botocore.auth.get_current_datetime", clock)
        yield clock


def headers_of(head: bytes) -> dict[str, str]:
    first, *lines = head.decode("latin-1").split("\r\n")
    assert first == "POST / HTTP/1.1"
    assert lines[-2:] == ["", ""]
    return dict(line.split(": ", 1) for line in lines[:-2])


def sdk_headers(keys: Keys, region: str, host: str, target: str, body: bytes) -> dict[str, str]:
    """The headers that the SDK adds to a request."""
    request = AWSRequest(
        "POST",
        f"http://{host}/",
        {"Content-Type": CONTENT_TYPE, "X-Amz-Target": target, "Host": host},
        body,
    )
    credentials = ReadOnlyCredentials(keys.access, keys.secret, keys.token)
    SigV4Auth(credentials, "dynamodb", region).add_auth(request)
    return dict(request.headers.items())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(keys, times_ms), min_size=1, max_size=4),
    st.sampled_from(["eu-west-1", "us-gov-east-1", "local"]),
    st.sampled_from(HOSTS),
    st.sampled_from(["UpdateItem", "TransactWriteItems"]),
    st.binary(max_size=300) | st.text(st.characters(exclude_categories=["Cs"])).map(str.encode),
)
@example([(Keys("AKID", "s/+=", "t/+="), 0)] * 2, "eu-west-1", HOSTS[0], "GetItem", b"{}")
def test_a_signature_is_that_of_the_sdk(
    sdk_clock: FrozenClock,
    turns: list[tuple[Keys, int]],
    region: str,
    host: str,
    operation: str,
    body: bytes,
) -> None:
    """One signer, whose keys and clock change in any way: nothing of the last turn is left."""
    signer, target = Signer(region, host), f"DynamoDB_20120810.{operation}"
    for keys, now_ms in turns:
        sdk_clock.now_s = now_s = now_ms / 1_000
        ours = headers_of(signer.head(keys, target, body, now_s))
        theirs = sdk_headers(keys, region, host, target, body)
        assert {name: ours.get(name) for name in theirs} == theirs
        assert ours["Content-Length"] == str(len(body))


@pytest.mark.parametrize("unfit", ["a\r\nX-Evil: 1", "a b", "a\n", "ä", "\x7f"])
def test_keys_that_would_break_the_head_are_refused(unfit: str) -> None:
    """Such as a file of keys whose line end was read along."""
    for keys in (Keys(unfit, "secret"), Keys("access", "secret", unfit)):
        with pytest.raises(UnfitKeysError):
            Signer("eu-west-1", "localhost").head(keys, "T", b"{}", 0)


def test_no_secret_is_shown() -> None:
    """Keys may come up in a traceback."""
    assert "hidden" not in repr(Keys("access", "hidden-1", "hidden-2"))
