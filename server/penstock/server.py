"""The composition root: one process that is a whole server, or one that starts workers."""

from penstock.answering import open_answering
from penstock.build import check_workers, with_hash_key
from penstock.config.settings import Settings
from penstock.front import Front
from penstock.telemetry.repeats import Repeats
from penstock.transport.descriptors import raise_open_files_limit
from penstock.workers.crew import open_crew


async def serve(settings: Settings, repeats: Repeats | None = None) -> None:
    """Run until SIGTERM or SIGINT. ConfigError if it can't start."""
    check_workers(settings)
    settings = with_hash_key(settings)
    raise_open_files_limit()
    opened = open_answering(settings) if settings.workers == 1 else open_crew(settings)
    async with opened as engine:
        await Front(settings, engine).run(repeats or Repeats())
