"""Who may read the file: its owner alone, or a group that an operator chose.

SQLite gives the log (`-wal`) and its index (`-shm`) the permissions of the file, so those of the
file decide. The umask of the process stays as it is: it belongs to every thread.
"""

import logging
import os
import stat
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

LOG: Final = logging.getLogger(__name__)

PRIVATE: Final = 0o600
OTHERS: Final = 0o007
BY_DEFAULT: Final = 0o644
"""What SQLite gives a new file, and so what Penstock before 0.4 left to everybody to read."""


def beside(path: Path) -> tuple[Path, Path]:
    """The log, and its index."""
    return Path(f"{path}-wal"), Path(f"{path}-shm")


def create_private(path: Path) -> None:
    """Create an empty file for its owner alone, unless there is a file.

    An existing file must not even be opened: to close it again would drop the locks that SQLite
    holds on it in this process.
    """
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        # Of a link that leads nowhere yet, the place where it leads.
        os.close(os.open(path.resolve(), flags, PRIVATE))
    except FileExistsError:
        return
    except OSError as exc:
        raise ConfigError(f"store {path}: cannot be created ({exc.strerror})") from exc


def make_private(path: Path) -> None:
    """Take away the access of others to a file that an older version created.

    The access of a group stays if an operator chose it, which is any mode but the default.
    """
    for file in (path, *beside(path)):
        try:
            mode = stat.S_IMODE(file.stat().st_mode)
        except OSError:
            continue  # not there; or opening it will say what is wrong
        wanted = PRIVATE if mode == BY_DEFAULT else mode & ~OTHERS
        if wanted == mode:
            continue
        try:
            file.chmod(wanted)
        except OSError as exc:
            LOG.warning("store %s: others can read the file (mode %04o): %s", file, mode, exc)
        else:
            LOG.warning(
                "store %s: others could read the file: its mode was %04o, now it is %04o",
                file, mode, wanted,
            )  # fmt: skip
