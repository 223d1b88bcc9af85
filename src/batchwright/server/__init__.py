"""The service: HTTP in, `ports.batches` out. Knows nothing of stores, workers or vendors."""
