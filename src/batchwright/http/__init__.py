"""The only outbound HTTP: two transports behind `ports.http`, chosen by `open.open_http_client`.

`own` is the default: our connections, llhttp as the parser. `curl` is libcurl, for proxies. Both sit one exam,
tests/exams/test_transport.py. Why there are two stands in docs/adr/0002-http-transport.md.
"""
