"""A server with a probe in its event loop, as a process of its own.

The probe wants to run every millisecond. It writes how late it was to standard output, and how long
the event loop computed meanwhile: the rest of the time it waited for a lock or for a processor.
"""

import asyncio
import logging
import sys
import time

from penstock import server
from penstock.config.settings import Settings

LOCAL = "127.0.0.1"
EVERY_S = 0.001
WORTH_S = 0.002


async def probe() -> None:
    """Write when each pause ended, its length, and how long was computed, all in seconds."""
    while True:
        before_s, before_cpu_s = time.monotonic(), time.thread_time()
        await asyncio.sleep(EVERY_S)
        now_s, computed_s = time.monotonic(), time.thread_time() - before_cpu_s
        if (late_s := now_s - before_s - EVERY_S) > WORTH_S:
            print(now_s, late_s, computed_s, flush=True)


async def serve(rules: str, store: str) -> None:
    settings = Settings(
        config=rules,
        store=store,
        grpc_host=LOCAL,
        grpc_port=0,
        host=LOCAL,
        port=0,
        debug_host=LOCAL,
        debug_port=0,
        drain_timeout=0,
    )
    probing = asyncio.create_task(probe())
    try:
        await server.serve(settings)
    finally:
        probing.cancel()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(serve(*sys.argv[1:]))
