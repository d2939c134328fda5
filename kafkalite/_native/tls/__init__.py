"""Encrypt connections with OpenSSL: certificates of a listener, and the session of a connection.

Modules, from the bottom up:

    libssl · tls_context · tls_session

Network threads encrypt and decrypt. Kernel TLS is not used: only root can load its module, and its handling of key
updates depends on the kernel.
"""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "tls")
