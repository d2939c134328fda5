"""Who issues bearer tokens: a key, the document that shows its public half, tokens, an endpoint that hands them out."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.harness.certificates import Identity

NAME, AUDIENCE, KEY_ID = "https://issuer.test", "kafka", "first"


class Issuer:
    """A token issuer with its own key; its key document is in a file."""

    def __init__(self, directory: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.document = directory / "keys.json"
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        self.document.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig"}]}))

    def settings(self) -> dict[str, Any]:
        """Of a broker that believes its tokens alone."""
        return {
            "sasl_enabled_mechanisms": "OAUTHBEARER",
            "sasl_oauthbearer_jwks_endpoint_url": self.document.as_uri(),
            "sasl_oauthbearer_expected_issuer": NAME,
            "sasl_oauthbearer_expected_audience": AUDIENCE,
        }

    def token(self, user: str, lifetime_s: float = 600) -> str:
        now = int(time.time())
        claims = {"sub": user, "iat": now, "exp": now + lifetime_s, "iss": NAME, "aud": AUDIENCE}
        return jwt.encode(claims, self._key, "ES256", {"kid": KEY_ID})


class KeyServer:
    """Hands the document out by https; its other paths redirect to it, or are too long."""

    def __init__(self, document: bytes, identity: Identity, directory: Path) -> None:
        self.requests: list[str] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(self.path)
                elsewhere = self.path == "/elsewhere"
                data = document if self.path != "/long" else b" " * 2_000_000
                self.send_response(302 if elsewhere else 200)
                if elsewhere:
                    self.send_header("Location", "/keys")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_arguments: object) -> None:
                """Nothing."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(identity.write_pem(directory / "issuer.pem")))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._server.handle_error = lambda *_arguments: None  # type: ignore[method-assign]  # clients that refuse us
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class TokenEndpointServer:
    """Hands tokens out to one client, for its credentials; other paths redirect, or hold nothing."""

    def __init__(self, issuer: Issuer, client_id: str, secret: str) -> None:
        expected = (
            "Basic " + base64.b64encode(f"{client_id.replace(' ', '+')}:{secret.replace(':', '%3A')}".encode()).decode()
        )
        self.requests: list[str] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if self.headers["Authorization"] != expected:
                    self.answer(401, {})
                elif self.path == "/elsewhere":
                    self.answer(302, {}, Location="/")
                elif self.path == "/nothing":
                    self.answer(200, {})
                else:
                    requests.append(body)
                    self.answer(200, {"access_token": issuer.token("dora"), "expires_in": 600})

            def answer(self, status: int, document: dict[str, Any], **headers: str) -> None:
                data = json.dumps(document).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_arguments: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
