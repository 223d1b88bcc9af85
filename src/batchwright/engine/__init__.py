"""The work line: intake, claim, reserve, send, decide, checkpoint, settle. Joins `core` decisions to `ports` adapters."""
