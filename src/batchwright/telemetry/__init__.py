"""What this process tells an observer of its own kind; only what is asked for is imported."""
