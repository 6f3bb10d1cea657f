"""What `turnlog-server dev` adds to a server: a workspace, keys, an agent, a profile for the client, maybe a runner."""

import asyncio
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from turnlog_server.app.runner_child import RunnerChild, console_script
from turnlog_server.app.settings import Settings, SettingsError, reachable
from turnlog_server.domain.names import known
from turnlog_server.service.bootstrap import DEV_WORKSPACE, DevSecrets, ensure_dev
from turnlog_server.store.access import workspace_named
from turnlog_server.store.agents import deployment_named
from turnlog_server.store.database import Database
from turnlog_server.store.execute import reading

CONNECT_SECONDS = 15.0


class Dev:
    """with_runner: start one, and keep it."""

    def __init__(self, settings: Settings, *, with_runner: bool) -> None:
        self._settings = settings
        self._folder = settings.data_dir.expanduser().absolute()
        self._with_runner = with_runner
        self._runner: RunnerChild | None = None
        self._address = ""
        self._script = console_script()
        if with_runner and self._script is None:
            raise SettingsError("There is no `turnlog` beside this Python, which --with-runner starts: install it.")
        repo = _repo_agent()
        self._agent = "echo" if repo is None else "repo"
        self._harnesses = {"echo": "echo"} if repo is None else {"repo": repo, "echo": "echo"}

    async def prepare(self, database: Database, address: str) -> None:
        """Makes what is missing, and writes the files that the client and the runner find us by."""
        self._address = address
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        saved = DevSecrets(_read(self._folder / "key"), _read(self._folder / "runner-key"))
        secrets = await ensure_dev(database, saved)
        _write(self._folder / "key", secrets.manager)
        _write(self._folder / "runner-key", secrets.runner)
        execute = reading(database, "dev_profile")
        workspace = known(await workspace_named(execute, DEV_WORKSPACE), "workspace", DEV_WORKSPACE)
        deployment = await deployment_named(execute, workspace.workspace_id, self._agent)
        profile = {
            "address": reachable(address),
            "key": secrets.manager,
            "workspace_id": workspace.workspace_id,
            "agent_deployment_id": known(deployment, "deployment", self._agent).agent_deployment_id,
        }
        if self._settings.tls_cert is not None:
            profile["ca_file"] = str(self._settings.tls_cert.absolute())
        _write(self._folder / "profile.json", json.dumps(profile, indent=2))

    async def ready(self, runner_connected: asyncio.Event) -> None:
        """Starts the runner, and greets."""
        runners = ""
        if self._with_runner and self._script is not None:
            folder = self._folder
            self._runner = RunnerChild(
                self._script, folder / "profile.json", folder / "runner-key", folder / "runner", self._harnesses
            )
            self._runner.start()
            runners = " · 1 runner connected" if await _seen(runner_connected) else " · no runner connected yet"
        print("\n".join(self._greeting(runners)), flush=True)

    async def stop(self) -> None:
        """Ends the runner."""
        if self._runner is not None:
            await self._runner.stop()

    def _greeting(self, runners: str) -> list[str]:
        folder = self._folder
        shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
        here = folder.parent == Path.cwd() and folder.name == ".turnlog"
        turnlog = _shown_script(self._script) + (
            "" if here else f" --profile {shlex.quote(str(shown / 'profile.json'))}"
        )
        secure = "-plaintext" if self._settings.tls_cert is None else f"-cacert {self._settings.tls_cert}"
        bearer = f'-H "authorization: Bearer $(cat {shlex.quote(str(shown / "key"))})"'
        return [
            f'Turnlog is ready on {self._address} · workspace "{DEV_WORKSPACE}"'
            f' · agent "{self._agent}" deployed{runners}',
            f"  {turnlog + ' session chat --new':<60} talk to it",
            f"  grpcurl {secure} {bearer} {reachable(self._address)} list",
            f"  Ctrl-C stops; your Sessions stay in {shown}/",
        ]


class Alone:
    """A server that nobody accompanies: it only says where it is."""

    def __init__(self) -> None:
        self._address = ""

    async def prepare(self, database: Database, address: str) -> None:
        """Remembers the address."""
        self._address = address

    async def ready(self, runner_connected: asyncio.Event) -> None:
        """Says that calls are answered."""
        print(f"Turnlog is ready on {self._address}", flush=True)

    async def stop(self) -> None:
        """Nothing to stop."""


async def _seen(connected: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await connected.wait()
    except TimeoutError:
        return False


def _repo_agent() -> str | None:
    """How to start the example that answers questions about the source tree around us, where there is one."""
    places = (Path.cwd(), *Path(__file__).resolve().parents)
    found = next(
        (place / "examples" / "repo_agent" for place in places if (place / "examples/repo_agent").is_dir()), None
    )
    return shlex.join([sys.executable, str(found), "--tree", str(Path.cwd())]) if found else None


def _shown_script(script: Path | None) -> str:
    """As a person in this folder would type it."""
    if script is None or shutil.which("turnlog") == str(script):
        return "turnlog"
    return shlex.quote(os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except FileNotFoundError:
        return ""


def _write(path: Path, text: str) -> None:
    """For our eyes only from its first moment on, and never seen half."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text + "\n")
    fresh.replace(path)
