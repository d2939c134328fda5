"""An authority of our own, and the certificates that it gives: PEM and PKCS#12 files for listeners and clients."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PASSWORD = "certain secret"
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def name_of(common_name: str, **more: str) -> x509.Name:
    """O=Tests, then what is given by x509's names of attributes, then CN."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests")]
    attributes += [x509.NameAttribute(getattr(NameOID, key), value) for key, value in more.items()]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


@dataclass(frozen=True)
class Identity:
    """A key with its certificate and that of its issuer."""

    key: Key
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def encrypted_key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )

    @property
    def chain_pem(self) -> bytes:
        return pem(self.certificate) + pem(self.issuer)

    def write_pem(self, path: Path) -> Path:
        """Key and chain in one file."""
        path.write_bytes(self.key_pem + self.chain_pem)
        return path

    def write_pkcs12(self, path: Path) -> Path:
        """The same as PKCS#12, with PASSWORD."""
        encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
        data = pkcs12.serialize_key_and_certificates(b"it", self.key, self.certificate, [self.issuer], encryption)
        path.write_bytes(data)
        return path


class Authority:
    """Issues certificates."""

    def __init__(self, common_name: str = "Authority") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = name_of(common_name)
        builder = build_certificate(self.name, self.name, self.key, 0, 3650)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False
        )
        self.certificate = builder.sign(self.key, hashes.SHA256())

    def issue(
        self,
        common_name: str,
        *,
        client: bool = False,
        also_client: bool = False,
        hosts: tuple[str, ...] = ("localhost",),
        addresses: tuple[str, ...] = ("127.0.0.1",),
        begins_days: float = -1,
        ends_days: float = 30,
        bits: int = 0,
        name: x509.Name | None = None,
    ) -> Identity:
        """For a server under these names (`also_client` of others), or a client; `bits`: an RSA key of that size."""
        key: Key = rsa.generate_private_key(65537, bits) if bits else ec.generate_private_key(ec.SECP256R1())
        builder = build_certificate(name or name_of(common_name), self.name, key, begins_days, ends_days)
        purposes = [] if client else [ExtendedKeyUsageOID.SERVER_AUTH]
        if client or also_client:
            purposes.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if not client:
            names = [x509.DNSName(host) for host in hosts]
            numbers = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName([*names, *numbers]), critical=False)
        return Identity(key, builder.sign(self.key, hashes.SHA256()), self.certificate)

    def write_pem(self, path: Path) -> Path:
        """The authority's certificate, as a trust store."""
        path.write_bytes(pem(self.certificate))
        return path

    def write_pkcs12(self, path: Path) -> Path:
        """The same as Java's trust stores in PKCS#12 are, with PASSWORD."""
        encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
        entry = pkcs12.PKCS12Certificate(self.certificate, b"authority")
        path.write_bytes(pkcs12.serialize_java_truststore([entry], encryption))
        return path

    def revocations(self, *revoked: Identity) -> bytes:
        """A revocation list as PEM."""
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.name)
        builder = builder.last_update(now - dt.timedelta(days=1)).next_update(now + dt.timedelta(days=1))
        for identity in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(identity.certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(now).build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def build_certificate(
    subject: x509.Name, issuer: x509.Name, key: Key, begins_days: float, ends_days: float
) -> x509.CertificateBuilder:
    """What every certificate has, not signed yet."""
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(days=begins_days, hours=-1))
        .not_valid_after(now + dt.timedelta(days=ends_days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
