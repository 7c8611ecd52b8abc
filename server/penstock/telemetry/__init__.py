"""What the operator sees: metrics, traces, logs. Knows no other room, and decides nothing."""
