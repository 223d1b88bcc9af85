"""The library: `batchwright.run` and `run_async`, thin over the same function the command uses."""
