"""The image, as far as it can be had without a container: what its file says, and its command."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.envoy import CONFIG_FILE
from tests.support.processes import PENSTOCK, Penstock

DEPLOY = CONFIG_FILE.parents[1]
ROOT = DEPLOY.parent
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
RATELIMIT = DEPLOY / "docker" / "ratelimit"

FREE_PORTS = {"GRPC_PORT": "0", "PORT": "0", "DEBUG_PORT": "0"}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each with its arguments on one line."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines) if name]


def said() -> dict[str, str]:
    """The last word of the Dockerfile on each subject."""
    return dict(instructions())


def environment() -> dict[str, str]:
    """The variables that are set in the image."""
    return dict(part.split("=", 1) for part in said()["ENV"].split())


@contextmanager
def run_ratelimit(
    folder: Path, env: Mapping[str, str], *arguments: str, inside: tuple[str, ...] = ()
) -> Iterator[Penstock]:
    """Run the image's /bin/ratelimit in a folder, with these variables and no others.

    `inside` is a command that runs it in other surroundings.
    """
    log_file = folder.parent / f"{folder.name}.log"
    store = f"sqlite:///{folder}/penstock.db"
    path = f"{PENSTOCK.parent}:{os.defpath}"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*inside, str(RATELIMIT), *arguments],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={"PATH": path, "PENSTOCK_STORE": store, **FREE_PORTS, **env},
        )
    try:
        yield Penstock(process, log_file)
    finally:
        process.kill()
        process.wait()
