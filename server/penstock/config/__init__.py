"""What the operator writes: settings, rules files and policy files."""
