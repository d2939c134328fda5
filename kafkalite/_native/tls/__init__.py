"""OpenSSL as the broker uses it: a listener's certificates, and a connection's session.

Modules, from the bottom up:

    libssl · tls_context · tls_session

The network thread encrypts records. Kernel TLS is not used: root has to load its module, and its handling of key
updates depends on the kernel.
"""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "tls")
