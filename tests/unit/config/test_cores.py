"""`--workers auto`: as many workers as there are cores to use."""

import os
from pathlib import Path

import pytest
from penstock.config.cores import usable_cores
from penstock.config.kinds import WORKERS

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000", CORES),
        ("100000 100000", 1),
        ("50000 100000", 1),
        ("110000 100000", min(2, CORES)),
        ("99900000 100000", CORES),
        ("odd", CORES),
        (None, CORES),
    ],
)
def test_a_quota_counts(tmp_path: Path, quota: str | None, cores: int) -> None:
    """A container that may use half a core, or all of them, or that tells nothing."""
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(f"{quota}\n")
    assert usable_cores(file) == cores


def test_auto_is_a_number_of_workers() -> None:
    """In any case; and nothing else but numbers is."""
    assert WORKERS.parse("auto") == WORKERS.parse("AUTO") == usable_cores()
    for text in ("0", "257", "-1", "two", "1.5", ""):
        with pytest.raises(ValueError, match="is not a number from 1 to 256"):
            WORKERS.parse(text)
