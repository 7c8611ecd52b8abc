"""How many cores this process may use."""

import math
import os
from pathlib import Path
from typing import Final

QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
"""On Linux: the time that a container may use in each period, or `max`."""


def usable_cores(quota: Path = QUOTA) -> int:
    """The cores that the system lets this process run on, at most as many as its quota pays for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        time_us, period_us = map(int, quota.read_text().split())
    except (OSError, ValueError):  # another system, or no quota
        return cores or 1
    return max(1, min(cores or 1, math.ceil(time_us / period_us)))
