"""`python -m penstock.workers NUMBER LOOP CHANNEL [LANE]`: a worker, for its parent to start."""

import signal
import sys

# Before the imports below, which take a second: until then a signal would end this process.
for _number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(_number, signal.SIG_IGN)

from penstock.workers.worker import main  # noqa: E402 - see above

if __name__ == "__main__":
    number, event_loop, *descriptors = sys.argv[1:]
    sys.exit(main(int(number), event_loop, *map(int, descriptors)))
