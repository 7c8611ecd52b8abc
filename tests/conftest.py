"""What all tests share: no way to a real AWS account, and one DynamoDB Local for those that ask."""

import logging
import signal
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from penstock.telemetry.repeats import Repeats

from tests.support.dynamodb import forget_aws_account, read_sdk_models_once, run_dynamodb

# A busy machine is no fault: how long an example takes says nothing about what it proves.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell starts what it runs in the background with SIGINT ignored, and processes that tests start
# would inherit that. With a handler here they begin with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options live here, because pytest reads no other conftest.py before its command line."""
    attacks = parser.getgroup("attacks on running servers")
    attacks.addoption(
        "--attack-minutes", type=float, default=0.0, help="repeat the history check for so long"
    )
    attacks.addoption(
        "--attack-connections",
        type=int,
        default=2_000,
        help="how many clients come and go",
    )
    attacks.addoption(
        "--attack-seed", type=int, default=1, help="the seed of its first round; it counts up"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests that are to last for minutes the time for it."""
    minutes = float(config.getoption("--attack-minutes"))
    for item in items:
        if minutes and "attack_minutes" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(60 * minutes + 300))


@pytest.fixture(scope="session", autouse=True)
def _aws_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        forget_aws_account(patch)
        read_sdk_models_once(patch)
        yield


@pytest.fixture(autouse=True)
def _no_log_of_another_test(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Hear no sender of traces of an earlier test, and leave nothing behind that hears later tests.

    A sender that was stopped may still log, from its thread, that nobody listens.
    """
    senders = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def is_of_this_test(record: logging.LogRecord) -> bool:
        return record.thread not in senders or not record.name.startswith("opentelemetry")

    caplog.handler.addFilter(is_of_this_test)
    yield
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if any(isinstance(one, Repeats) for one in handler.filters):
            root.removeHandler(handler)
            logging.captureWarnings(capture=False)
            logging.getLogger("penstock").setLevel(logging.NOTSET)
            logging.getLogger("grpc").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def dynamodb_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of DynamoDB Local. All tests share its tables, so each names its own."""
    with run_dynamodb(tmp_path_factory.mktemp("dynamodb")) as url:
        yield url
