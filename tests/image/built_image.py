"""The image, built from the Dockerfile and run as its own user. `make test-image` runs this, `make test` does not."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from building import DATA, IMAGE, Container, Workshop
from psycopg.conninfo import make_conninfo
from support.console import blocks_of, typed
from support.postgres import postgres_running
from support.real_runner import real_runner

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = blocks_of((ROOT / "README.md").read_text("utf-8"))
USER = 10001
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "ld", "as", "make", "cargo", "go")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.system("buildah", "debootstrap"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a Debian and to mount"),
]


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    """The image, built."""
    for tool in ("buildah", "debootstrap"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    with tempfile.TemporaryDirectory(prefix="turnlog-image-", dir="/var/tmp") as folder:
        workshop = Workshop(Path(folder))
        try:
            workshop.build(workshop.base())
            yield workshop
        finally:
            workshop.close()


@pytest.fixture
def data() -> Iterator[Path]:
    """A volume, as an engine makes it: it belongs to whom the image's folder belongs."""
    with tempfile.TemporaryDirectory(prefix="turnlog-data-", dir="/var/tmp") as folder:
        os.chown(folder, USER, USER)
        yield Path(folder)


@pytest.fixture
def address() -> str:
    """A free one: the container has the network of this machine."""
    return free_address()


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def environment(address: str, **more: str) -> dict[str, str]:
    """Settings beside the image's own."""
    own = {"TURNLOG_LISTEN": address, "TURNLOG_METRICS_LISTEN": "127.0.0.1:0", "TURNLOG_LOG_LEVEL": "info"}
    return own | more


def test_it_says_how_it_is_run(workshop: Workshop) -> None:
    config = workshop.config()
    assert config["User"] == str(USER)
    assert config["Entrypoint"] == ["turnlog-server"]
    assert config["Healthcheck"]["Test"] == ["CMD", "turnlog-server", "healthcheck"]
    assert config["StopSignal"] == "SIGTERM"
    assert list(config["Volumes"]) == [DATA]
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == "Turnlog"
    assert labels["org.opencontainers.image.version"] == "1.2.3"
    assert labels["org.opencontainers.image.revision"] == "abc"


def test_it_holds_what_it_needs_and_no_secret(workshop: Workshop) -> None:
    with workshop.mounted() as root:
        found = [name for name in COMPILERS for place in ("usr/bin", "usr/local/bin") if (root / place / name).exists()]
        assert found == []
        home = root / DATA[1:]
        assert (home.stat().st_uid, home.stat().st_mode & 0o777) == (USER, 0o700)
        assert list(home.iterdir()) == []
        assert not (root / "etc/pip.conf").exists()
        assert not [path for path in (root / "run").rglob("*") if path.is_file()]
        ours = root / "opt/turnlog"
        assert not list(ours.glob("lib/*/site-packages/pip"))
        # Nothing there belongs to the user that it runs as, or may be written by it.
        loose = [p for p in ours.rglob("*") if not p.is_symlink() and (p.stat().st_uid or p.stat().st_mode & 0o002)]
        assert loose == []
    history = workshop.buildah("inspect", "--type", "image", "--format", "{{.History}} {{.Docker.Config.Env}}", IMAGE)
    assert "index-url" not in history


@pytest.mark.rule("R17")
@pytest.mark.system("grpcurl")
async def test_the_first_session_from_outside(workshop: Workshop, data: Path, tmp_path: Path, address: str) -> None:
    tree = tmp_path / "turnlog"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "node_modules"))
    (tree / ".venv").symlink_to(sys.prefix)
    async with workshop.running(data, "dev", environment=environment(address)) as container:
        await container.until_healthy()
        _unprivileged(container)
        await _profile(data, tree, address)
        harness = shlex.join([sys.executable, str(tree / "examples/repo_agent"), "--tree", str(tree)])
        key = (data / "runner-key").read_text().strip()
        async with real_runner(address, key, tmp_path / "runner", f"repo={harness}"):
            await typed(BLOCKS, address, tree)
        main = container.main()
        main.send_signal(signal.SIGTERM)
        assert await container.ends() == 0
        assert any("drained" in line for line in container.out)


def _unprivileged(container: Container) -> None:
    """Server and PostgreSQL run as the image's user, with no power beyond it."""
    main = container.main()
    family = [main, *main.children(recursive=True)]
    assert any(process.name().startswith("postgres") for process in family)
    for process in family:
        assert set(process.uids()) == {USER}
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status


async def _profile(data: Path, tree: Path, address: str) -> None:
    """The files of `dev`, taken out of the volume; the agent is the one that reads a tree."""
    folder = tree / ".turnlog"
    folder.mkdir()
    profile = json.loads((data / "profile.json").read_text())
    (folder / "key").write_text(profile["key"])
    (folder / "profile.json").write_text(json.dumps(profile))
    os.chmod(folder / "profile.json", 0o600)
    listed = await _turnlog(tree, "--json", "deployment", "list")
    deployments = [json.loads(line) for line in listed.splitlines()]
    repo = next(each["agent_deployment_id"] for each in deployments if each["name"] == "repo")
    (folder / "profile.json").write_text(json.dumps(profile | {"agent_deployment_id": repo}))


async def _turnlog(tree: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("turnlog")), *arguments, cwd=tree, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode()


@pytest.mark.rule("R1")
async def test_the_volume_is_all_that_stays(workshop: Workshop, data: Path, address: str) -> None:
    settings = environment(address, TURNLOG_PROFILE=f"{DATA}/profile.json")
    async with workshop.running(data, "dev", environment=settings) as first:
        await first.until_healthy()
        code, session_id = await first.run("turnlog", "session", "create")
        assert code == 0, session_id
        first.main().kill()
        assert await first.ends() != 0
    # A runner in a container of its own, as compose.yaml has it.
    async with workshop.running(data, "dev", environment=settings) as second:
        await second.until_healthy()
        entrypoint = ["turnlog", "--address", address, "--plaintext", "runner", "start"]
        command = ("--key-file", f"{DATA}/runner-key", "--data-dir", f"{DATA}/runner", "--harness", "echo=echo")
        async with workshop.running(data, *command, entrypoint=entrypoint) as runner:
            code, said = await second.run("turnlog", "session", "chat", session_id.strip(), "hello")
            assert (code, "idle · 1 attempt" in said) == (0, True), said
            runner.main().send_signal(signal.SIGTERM)
            assert await runner.ends() == 0
        second.main().send_signal(signal.SIGTERM)
        assert await second.ends() == 0


async def test_a_postgresql_elsewhere(workshop: Workshop, data: Path, address: str) -> None:
    host, _, port = free_address().rpartition(":")
    async with postgres_running(listen_addresses=host, port=port) as postgres:
        dsn = make_conninfo(postgres.database_create(), host=host)
        settings = environment(address, TURNLOG_DATABASE_URL=dsn)
        async with workshop.running(data, "serve", "--migrate", environment=settings) as container:
            await container.until_healthy()
            # The volume is not needed.
            assert list(data.iterdir()) == []
            code, said = await container.run("turnlog-server", "check")
            assert code == 0, said
            container.main().send_signal(signal.SIGTERM)
            assert await container.ends() == 0
