"""Sentences of ours for what the operating system, the resolver and TLS say. Never a vendor's text."""

from __future__ import annotations

import os
import socket
import ssl

from batchwright.ports.http import FaultCause, HttpFault


def network(detail: str) -> HttpFault:
    return HttpFault(FaultCause.NETWORK, detail)


def unreachable(detail: str) -> HttpFault:
    return HttpFault(FaultCause.UNREACHABLE, detail)


def timeout(detail: str) -> HttpFault:
    return HttpFault(FaultCause.TIMEOUT, detail)


def describe(error: Exception) -> str:
    """A short sentence for what an attempt to connect, or a connection, ended with."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "TLS handshake failed: the connection was closed"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "unknown reason").replace("_", " ").lower()
        return f"TLS failed: {reason}"
    if isinstance(error, socket.gaierror):
        return f"host name not resolved: {(error.strerror or 'unknown reason').lower()}"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError):
        return "connection reset"
    if isinstance(error, (BrokenPipeError, ConnectionAbortedError)):
        return "connection closed"
    if isinstance(error, TimeoutError):
        return "connect timeout"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return type(error).__name__
