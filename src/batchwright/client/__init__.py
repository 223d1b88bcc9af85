"""A batch service over HTTP: this project's own, or Infrai's.

calls, replies, values, errors     what is asked and what comes back, without I/O
asking                             one call: sent, sent again where that is harmless, its reply read
sdk, sdk_sync                      what `batchwright.AsyncClient` and `batchwright.Client` offer
"""
