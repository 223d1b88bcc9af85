"""Fixtures that are shared by all tests: the real model's server, started once for those that ask for it."""

pytest_plugins = ["support.local_server"]
