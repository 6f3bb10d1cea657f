"""TLS: certificates from files that are looked at again for every new connection, so that renewal needs no restart."""

import base64
import ipaddress
import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
import structlog

from turnlog_server.app.settings import Settings, SettingsError

log = structlog.get_logger(__name__)

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
# Tags of DER: the optional version, the shorter of two kinds of time, and two kinds of names.
_VERSION, _UTC_TIME, _DNS_NAME, _IP_ADDRESS = 0xA0, 0x17, 0x82, 0x87

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the certificate chain, its key and, for mTLS, the CA of clients are."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def of(cls, settings: Settings) -> "CertificateFiles | None":
        """None without TLS."""
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        return cls(settings.tls_cert, settings.tls_key, settings.tls_client_ca)

    def stamp(self) -> Stamp:
        """Differs whenever one of the files was written or replaced."""
        found = [path.stat() for path in (self.cert, self.key, self.client_ca) if path is not None]
        return tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in found)

    def read(self) -> grpc.ServerCertificateConfiguration:
        """What the files hold now. Raises SettingsError where they cannot be used together."""
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            # Without a password: otherwise OpenSSL would ask for one on the terminal.
            context.load_cert_chain(self.cert, self.key, password="")
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
            return grpc.ssl_server_certificate_configuration(
                [(self.key.read_bytes(), self.cert.read_bytes())],
                root_certificates=self.client_ca.read_bytes() if self.client_ca is not None else None,
            )
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"The certificate {self.cert} with the key {self.key} cannot be used: {error.strerror or error}."
            ) from None

    def expiry(self) -> datetime:
        """When the first certificate of the chain expires."""
        return _not_after(self._first())

    def name(self) -> str:
        """A name that the certificate is for, empty where it has none."""
        return _subject_alternative(self._first())

    def _first(self) -> bytes:
        found = _PEM.search(self.cert.read_bytes())
        if found is None:
            raise SettingsError(f"{self.cert} holds no PEM certificate.")
        return base64.b64decode(found[1])

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that follow the files. Raises SettingsError where they cannot be used now."""
        stamp = self.stamp_or_none()
        return grpc.dynamic_ssl_server_credentials(
            self.read(),
            _Renewal(self, stamp).fetch,  # type: ignore[arg-type]  # None is documented, the stubs forgot it
            require_client_authentication=self.client_ca is not None,
        )

    def stamp_or_none(self) -> Stamp | None:
        """None while a file is missing, as in the moment of a renewal."""
        try:
            return self.stamp()
        except OSError:
            return None


class _Renewal:
    """Asked by gRPC before each handshake, in a thread of gRPC's own."""

    def __init__(self, files: CertificateFiles, stamp: Stamp | None) -> None:
        self._files = files
        self._stamp = stamp

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """The renewed certificate, or None to go on with the one in use: also while the files do not fit together."""
        stamp = self._files.stamp_or_none()
        if stamp is None or stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            renewed = self._files.read()
        except SettingsError as error:
            log.error("the certificate was not renewed", error=str(error))
            return None
        if self._files.stamp_or_none() != stamp:
            # Written to while it was read: look again at the next connection.
            self._stamp = None
            return None
        log.info("the certificate is renewed", certificate=str(self._files.cert))
        return renewed


def _not_after(certificate: bytes) -> datetime:
    """From the DER: Certificate { TBSCertificate { [version] serial algorithm issuer validity { from, until } …"""
    _, body, _ = _element(certificate)
    _, body, _ = _element(body)
    tag, _, rest = _element(body)
    if tag == _VERSION:
        _, _, rest = _element(rest)
    for _ in ("algorithm", "issuer"):
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    _, _, rest = _element(validity)
    tag, text, _ = _element(rest)
    stamp = text.decode("ascii")
    if tag == _UTC_TIME:
        stamp = ("19" if int(stamp[:2]) >= 50 else "20") + stamp
    return datetime.strptime(stamp, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _subject_alternative(certificate: bytes) -> str:
    """The first DNS name or address of the extension 2.5.29.17, which stands in the DER as object id and octets."""
    _, found, rest = certificate.partition(b"\x06\x03\x55\x1d\x11")
    if not found:
        return ""
    _, octets, _ = _element(rest)
    _, names, _ = _element(octets)
    while names:
        tag, name, names = _element(names)
        if tag == _DNS_NAME:
            return name.decode("ascii").replace("*", "any", 1)
        if tag == _IP_ADDRESS:
            return str(ipaddress.ip_address(name))
    return ""


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """The first element: its tag and content; and what follows it."""
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start])
    return data[0], data[start : start + length], data[start + length :]
