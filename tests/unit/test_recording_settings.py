"""The settings of a recording: the secret of its hashes, and whether anything is recorded."""

from pathlib import Path

import pytest
from penstock.build import make_recorder, with_hash_key
from penstock.config.settings import Settings
from penstock.errors import ConfigError
from penstock.telemetry.metrics import Metrics


def test_hashes_without_a_secret_get_one() -> None:
    """Another one at each start, so that nobody can compare."""
    wanted = Settings(record_hash=("user",))
    one, other = with_hash_key(wanted), with_hash_key(wanted)
    assert len(one.record_hash_key) >= 32
    assert one.record_hash_key != other.record_hash_key
    assert with_hash_key(one) == one
    assert with_hash_key(Settings()) == Settings()


def test_a_short_secret_is_refused_and_not_shown() -> None:
    """Somebody could try all short secrets."""
    with pytest.raises(ConfigError, match="PENSTOCK_RECORD_HASH_KEY: 6 characters") as caught:
        with_hash_key(Settings(record_hash=("user",), record_hash_key="secret"))
    assert "secret" not in str(caught.value)


def test_nothing_is_recorded_unless_a_directory_is_named(tmp_path: Path) -> None:
    """And the directory is created then."""
    assert make_recorder(Settings(), Metrics(), lambda: 0) is None
    folder = tmp_path / "trace"
    wanted = Settings(record_trace=str(folder))
    assert make_recorder(wanted, Metrics(), lambda: 0) is not None
    assert folder.is_dir()
