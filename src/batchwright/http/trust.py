"""Whose certificates are believed: `SSL_CERT_FILE` and `SSL_CERT_DIR`, else the system's store."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

from batchwright.core.errors import UsageError

SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # newer RHEL
    "/etc/ssl/cert.pem",  # macOS, the BSDs
)
"""Where to look when the OpenSSL in use was built for another system than this one (portable Python builds are)."""


def trust_paths(environ: Mapping[str, str]) -> tuple[str, str]:
    """(bundle file, certificate folder), each empty where there is none.

    Raises UsageError for a variable that names what cannot be read.
    """
    file, folder = environ.get("SSL_CERT_FILE", ""), environ.get("SSL_CERT_DIR", "")
    if file and not os.access(file, os.R_OK):
        raise UsageError(f"SSL_CERT_FILE names {file}, which cannot be read: expected a PEM file of CA certificates")
    if folder and not os.path.isdir(folder):
        raise UsageError(f"SSL_CERT_DIR names {folder}, which is no folder: expected one with CA certificates")
    if file or folder:
        return file, folder
    built_in = ssl.get_default_verify_paths().cafile or ""
    for bundle in (built_in, *SYSTEM_BUNDLES):
        if bundle and os.access(bundle, os.R_OK):
            return bundle, ""
    return "", ""


def tls_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Certificates and host names are always checked. Raises UsageError as `trust_paths`."""
    file, folder = trust_paths(environ)
    try:
        # Without either, `create_default_context` asks the system (Windows has no bundle file).
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    except ssl.SSLError as error:
        raise UsageError(f"{file or folder} holds no usable CA certificates: {error.reason}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context
