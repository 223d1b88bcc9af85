"""The work line: intake, claim, reserve, send, decide, checkpoint, settle. Joins `core` to the adapters of `ports`."""
