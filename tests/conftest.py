"""Fixtures that are shared by all tests: the real model's server and PostgreSQL, started once for those that ask."""

pytest_plugins = ["support.local_server", "support.postgres"]
