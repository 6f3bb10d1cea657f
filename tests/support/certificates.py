"""Certificates for tests: an authority of our own, and what it signs."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


class Authority:
    """Signs certificates for 127.0.0.1; `ca` is what to trust."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} of the tests")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        built = _builder(self._name, self._name, self._key, timedelta(days=365)).add_extension(constraints, True)
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(PEM))

    def issue(self, name: str, lifetime: timedelta = timedelta(days=90)) -> tuple[Path, Path]:
        """A new certificate and its key, in files that replace those of the same name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
        built = _builder(subject, self._name, key, lifetime).add_extension(names, False)
        secret = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        cert, private = self._folder / f"{name}.pem", self._folder / f"{name}-key.pem"
        _replace(private, secret)
        _replace(cert, built.sign(self._key, hashes.SHA256()).public_bytes(PEM))
        return cert, private


def serial_of(pem: bytes) -> int:
    """The serial number of a certificate."""
    return x509.load_pem_x509_certificate(pem).serial_number


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(path)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + lifetime)
    )
