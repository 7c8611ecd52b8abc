"""What the tests share: real processes, and how to wait for them."""
