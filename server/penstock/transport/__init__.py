"""How requests come in: bytes on a wire, and the only room that knows protobuf."""

import os

# gRPC's C library writes to stderr past the log, a line for each stranger that fails to shake
# hands. It reads this once, when it is imported; GRPC_VERBOSITY=INFO has the lines back.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
