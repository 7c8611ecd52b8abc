"""`python -m penstock.workers NUMBER SOCKET`: a worker. Its parent starts it, and nobody else."""

import signal
import sys

# Before the imports below, which take a second: until then a signal would end this process.
for _number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(_number, signal.SIG_IGN)

from penstock.workers.worker import main  # noqa: E402 - see above

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
