"""How requests come in: bytes on a wire, and the only room that knows protobuf."""
