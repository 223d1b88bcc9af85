"""Bytes <-> values, no framework, no I/O. A wire shape does not leave this package."""
