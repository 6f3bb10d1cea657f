"""Where a client connects: profiles, environment, TLS."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from scripted import ScriptedServer, client
from turnlog.v1 import server_service_pb2
from turnlog_client import Tls, Turnlog
from turnlog_client.channel import is_local
from turnlog_client.client import settle
from turnlog_client.errors import Unavailable
from turnlog_client.profile import ProfileError, find_profile

FOUND = {"address": "127.0.0.1:7777", "key": "tlk_1", "workspace_id": "ws_1", "agent_deployment_id": "adep_1"}


def write(folder: Path, content: object = FOUND, mode: int = 0o600) -> Path:
    path = folder / ".turnlog" / "profile.json"
    path.parent.mkdir(parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(mode)
    return path


def test_a_profile_is_found_from_a_folder_below(tmp_path: Path) -> None:
    write(tmp_path)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    found = find_profile(environ={}, start=below)
    assert found
    assert (found.address, found.key, found.workspace_id) == ("127.0.0.1:7777", "tlk_1", "ws_1")
    assert (found.agent_deployment_id, found.ca_file) == ("adep_1", None)


def test_the_users_own_profile_comes_last(tmp_path: Path) -> None:
    home = tmp_path / "config"
    own = home / "turnlog" / "profile.json"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({**FOUND, "address": "own:1", "ca_file": "ca.pem"}))
    own.chmod(0o600)
    work = tmp_path / "work"
    work.mkdir()
    environ = {"XDG_CONFIG_HOME": str(home)}
    found = find_profile(environ=environ, start=work)
    assert found
    assert found.address == "own:1"
    assert found.ca_file == own.parent / "ca.pem"
    write(work)
    near = find_profile(environ=environ, start=work)
    assert near
    assert near.address == "127.0.0.1:7777"


def test_what_is_not_one_key_is_refused() -> None:
    with pytest.raises(ProfileError, match="must be one `tlk_…` token"):
        Turnlog.connect("127.0.0.1:7777", "tlk_1\n")


@pytest.mark.skipif(os.name != "posix", reason="no such permissions")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_profile_that_others_can_read_is_refused_with_what_to_do(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, mode=mode)
    with pytest.raises(ProfileError, match=f"chmod 600 {path}"):
        find_profile(environ={}, start=tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root may give a file away")
def test_a_found_profile_of_another_user_is_refused_unless_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    os.chown(path, 12345, 12345)
    with pytest.raises(ProfileError, match="another user"):
        find_profile(environ={}, start=tmp_path)
    assert find_profile(path, environ={})


@pytest.mark.parametrize("content", ["", "[]", "{}", '"x"', "{"])
def test_a_file_that_is_no_profile_says_so(tmp_path: Path, content: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ProfileError, match="is not a profile"):
        find_profile(path, environ={})


def test_a_named_profile_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        find_profile(tmp_path / "none.json", environ={})
    with pytest.raises(ProfileError, match="cannot be read"):
        find_profile(environ={"TURNLOG_PROFILE": str(tmp_path / "none.json")}, start=tmp_path)


def test_arguments_come_before_environment_before_profile(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert settle(None, None, path, {}).key == "tlk_1"
    assert settle(None, "tlk_2", path, {"TURNLOG_KEY": "tlk_3"}).key == "tlk_2"
    assert settle(None, None, path, {"TURNLOG_ADDRESS": "c:1", "TURNLOG_KEY": "tlk_3"}).key == "tlk_1", "it was named"
    assert settle(None, None, None, {"TURNLOG_PROFILE": str(path), "TURNLOG_KEY": "tlk_3"}).key == "tlk_3"
    assert settle("b:1", "k", None, {"TURNLOG_ADDRESS": "c:1"}).address == "b:1"
    assert settle(None, "k", None, {"TURNLOG_ADDRESS": "c:1"}).address == "c:1"


def test_a_profiles_key_is_never_sent_to_another_address(tmp_path: Path) -> None:
    path = write(tmp_path)
    settled = settle("elsewhere:1", None, path, {})
    assert (settled.address, settled.key, settled.agent_deployment_id) == ("elsewhere:1", "", "")


def test_no_server_named_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProfileError, match="turnlog-server dev"):
        settle(None, None, None, {"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("dns:///localhost:1", True),
        ("ipv4:127.0.0.1:1", True),
        ("unix:/run/x.sock", True),
        ("example.com:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example.com:1", False),
    ],
)
def test_only_this_machine_is_spoken_to_in_plaintext_by_default(address: str, local: bool) -> None:
    assert is_local(address) is local


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "grpc://x:1"])
async def test_a_url_is_not_an_address(address: str) -> None:
    with pytest.raises(Exception, match="host:port"):
        async with Turnlog.connect(address, "tlk_1"):
            pass


async def test_a_proxy_in_the_environment_does_not_catch_loopback(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with client(scripted) as t:
        assert (await t.server.info()).version == "0.1.0"


def certificate(folder: Path, name: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None):
    """Writes <name>.pem and <name>.key, signed by `issuer` or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("turnlog.test")]), critical=False)
        .sign(issuer[1] if issuer else key, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / f"{name}.key").write_bytes(private)
    return made, key


async def test_tls_both_ways(tmp_path: Path) -> None:
    authority = certificate(tmp_path, "ca")
    certificate(tmp_path, "server", authority)
    certificate(tmp_path, "client", authority)
    scripted = ScriptedServer()
    scripted.on("GetServerInfo", server_service_pb2.GetServerInfoResponse(version="0.1.0"))
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(scripted.handlers())
    pair = ((tmp_path / "server.key").read_bytes(), (tmp_path / "server.pem").read_bytes())
    credentials = grpc.ssl_server_credentials([pair], (tmp_path / "ca.pem").read_bytes(), require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    ca = tmp_path / "ca.pem"
    try:
        mutual = Tls(ca, tmp_path / "client.pem", tmp_path / "client.key", server_name="turnlog.test")
        async with Turnlog.connect(f"127.0.0.1:{port}", "tlk_1", tls=mutual) as t:
            assert (await t.server.info()).version == "0.1.0"
        one_way = Tls(ca, server_name="turnlog.test")
        async with Turnlog.connect(f"127.0.0.1:{port}", "tlk_1", tls=one_way, patience=0.0) as t:
            with pytest.raises(Unavailable):
                await t.server.info()
    finally:
        await server.stop(0)
