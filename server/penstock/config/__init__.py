"""What the operator writes: settings, and rules files."""
