"""What must stay true of Dockerfile and compose.yaml, without building anything. `built_image.py` is the rest."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from turnlog_client.cli.app import app as turnlog
from turnlog_server.app.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
INSTRUCTIONS = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
FINAL = INSTRUCTIONS[max(at for at, line in enumerate(INSTRUCTIONS) if line.startswith("FROM")) :]
# Read by the client, and so no setting of the server.
OF_THE_CLIENT = {"TURNLOG_PROFILE"}


def tool(name: str) -> str:
    """A program that comes with the development dependencies."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found


def ran(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compose() -> dict[str, Any]:
    """The services, as Compose itself reads the file."""
    return json.loads(ran(tool("docker-compose"), "--file", "compose.yaml", "config", "--format", "json"))["services"]


def seconds(span: str) -> int:
    """Compose's durations."""
    factors = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * factors[unit] for number, unit in re.findall(r"(\d+)([hms])", span))


def final(instruction: str) -> list[str]:
    """What the last stage says by this instruction."""
    return [line.partition(" ")[2] for line in FINAL if line.startswith(f"{instruction} ")]


def test_hadolint_has_nothing_to_say() -> None:
    assert ran(tool("hadolint"), "Dockerfile") == ""


def test_both_stages_start_from_what_was_given() -> None:
    bases = [line for line in INSTRUCTIONS if line.startswith("FROM")]
    assert bases == ["FROM ${BASE} AS build", "FROM ${BASE}"]
    [version] = re.findall(r"^ARG BASE=python:3\.(\d+)-slim$", DOCKERFILE, re.MULTILINE)
    assert int(version) >= 11


def test_the_image_runs_as_a_user_of_its_own_and_says_how() -> None:
    [user], [volume] = final("USER"), final("VOLUME")
    assert user.isdigit()
    assert int(user) >= 1000
    assert f"--uid {user} " in DOCKERFILE
    assert final("ENTRYPOINT") == ['["turnlog-server"]']
    assert final("STOPSIGNAL") == ["SIGTERM"]
    assert final("HEALTHCHECK")[0].endswith('CMD ["turnlog-server", "healthcheck"]')
    assert volume in final("ENV")[0]
    assert "org.opencontainers.image.title" in final("LABEL")[0]


def test_nothing_is_installed_where_it_runs() -> None:
    assert final("COPY") == ["--from=build /opt/turnlog /opt/turnlog"]
    assert not [line for line in final("RUN") if re.search(r"\b(pip|apt-get|apk|curl|wget)\b", line)]
    assert not [line for line in INSTRUCTIONS if line.startswith("ADD ")]


def test_what_is_copied_is_not_ignored() -> None:
    allowed = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    copied = [word for line in INSTRUCTIONS if line.startswith("COPY ") for word in line.split()[1:-1]]
    wanted = {word for word in copied if not word.startswith(("--", "/"))}
    assert wanted
    for name in wanted:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in allowed, name


def test_settings_exist() -> None:
    named = {name for line in final("ENV") for name in re.findall(rf"({PREFIX}\w+)=", line)}
    named |= {name for service in compose().values() for name in service.get("environment", {})}
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    ours = {name for name in named if name.startswith(PREFIX)}
    assert ours
    assert ours - OF_THE_CLIENT <= settings


def test_compose_takes_its_file_and_waits_for_what_is_needed() -> None:
    services = compose()
    server, runner = services["server"], services["runner"]
    assert server["build"]["dockerfile"] == "Dockerfile"
    assert server["image"] == runner["image"] == "turnlog"
    for name, service in services.items():
        for needed in service.get("depends_on", {}):
            assert service["depends_on"][needed]["condition"] == "service_healthy", name
        for port in service.get("ports", ()):
            assert port["host_ip"] == "127.0.0.1", "what is not encrypted leaves this machine"
    exposed = {int(port) for line in final("EXPOSE") for port in line.split()}
    assert {port["target"] for port in server["ports"]} == exposed
    assert seconds(server["stop_grace_period"]) > Settings.model_fields["drain_grace_seconds"].default


def test_the_runner_of_compose_is_a_command() -> None:
    runner = compose()["runner"]
    program, *words = [*runner["entrypoint"], *runner["command"]]
    assert program == "turnlog"
    root: Any = typer.main.get_command(turnlog)
    with root.make_context("turnlog", words) as context:
        at = words.index("runner")
        group = root.commands["runner"]
        start = group.commands[words[at + 1]]
        given = start.make_context("start", words[at + 2 :], parent=context).params
    assert given["key_file"] == Path("/keys/runner-key")
    assert given["harness"] == ["echo=echo"]
    assert {"source": "turnlog", "target": "/keys"}.items() <= runner["volumes"][0].items()
