"""The routes that speak Infrai's batch API, `/v1/ai/batch/*` and `/v1/account/*`."""
