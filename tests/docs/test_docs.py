"""The documents say what is so: generated pages are current, links lead somewhere, commands and names exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from turnlog_client.cli.app import app as turnlog
from turnlog_client.cli.exits import next_step
from turnlog_client.errors import TurnlogError
from turnlog_server.app.commands import app as turnlog_server
from turnlog_server.app.metrics import Metrics
from turnlog_server.domain.access import PERMISSIONS
from turnlog_server.domain.refusals import Reason
from turnlog_server.wire.errors import TABLE

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs/*.md", "bench/*.md", "examples/*/*.md")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(page for each in FOLDERS for page in ROOT.glob(each))])
PROGRAMS: dict[str, Any] = {
    "turnlog": typer.main.get_command(turnlog),
    "turnlog-server": typer.main.get_command(turnlog_server),
}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(page: Path) -> str:
    return page.read_text("utf-8")


def prose_of(page: Path) -> str:
    """Without blocks of code."""
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    """The headings, as links spell them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_generated_pages_are_what_the_code_says() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors_of(there), target


@each_page
def test_tests_named_beside_a_link_are_in_that_file(page: Path) -> None:
    for target, names in re.findall(r"\]\(([^)\s]+test_\w+\.py)\)\s+\(((?:`test_\w+`(?:, )?)+)\)", prose_of(page)):
        source = text_of(page.parent / target)
        for name in re.findall(r"test_\w+", names):
            assert f"def {name}(" in source, f"{target} {name}"


@each_page
def test_every_path_in_code_exists(page: Path) -> None:
    roots = [ROOT, ROOT / "server/turnlog_server", ROOT / "clients/python/turnlog_client"]
    for path in re.findall(r"`((?:[\w.]+/)+[\w.]*\.(?:py|proto|toml|md|json))`", prose_of(page)):
        assert any((root / path).exists() for root in roots), path


def commands_of(page: Path) -> list[list[str]]:
    """Every command of ours, in code or in a block; what is put in by a shell stays as it is."""
    blocks = "\n".join(re.findall(r"^```\w*\s*\n(.*?)^```$", text_of(page), re.MULTILINE | re.DOTALL))
    lines = [re.sub(r"^\$ |\s+#.*$", "", line.strip()) for line in blocks.splitlines()]
    code = [" ".join(each.split()) for each in re.findall(r"`([^`]+)`", prose_of(page))]
    found = [re.sub(r"^[A-Z]+=\$\(|\s*[|)].*$", "", line) for line in [*lines, *code]]
    # As it stands in prose, `[--flag]` may be left out and `…` is anything.
    return [shlex.split(re.sub(r"[\[\]…]", "", line)) for line in found if re.match(r"turnlog(-server)? [a-z-]", line)]


@each_page
def test_every_command_and_flag_is_one_that_there_is(page: Path) -> None:
    for program, *words in commands_of(page):
        command, flags = PROGRAMS[program], {"--help"}
        for word in words:
            flags |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
            if word.startswith("--") and len(word) > 2:
                assert word.partition("=")[0] in flags, f"{program} {' '.join(words)}: {word}"
            elif word == "--":
                break
            elif hasattr(command, "commands") and re.fullmatch(r"[a-z-]+", word):
                assert word in command.commands, f"{program} {' '.join(words)}: {word}"
                command = command.commands[word]


def flags_of(command: Any) -> set[str]:
    """Of a command and all below it."""
    below = [flags_of(each) for each in getattr(command, "commands", {}).values()]
    return {name for each in command.params for name in each.opts}.union(*below)


def test_operators_find_every_metric_and_every_flag() -> None:
    page = text_of(ROOT / "docs/operations.md")
    served = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in Metrics().registry.collect()
        if family.name.startswith("turnlog_")
    }
    assert set(re.findall(r"`(turnlog_\w+)`", page)) == served
    known = {flag for program in PROGRAMS.values() for flag in flags_of(program)}
    assert set(re.findall(r"`(--[a-z-]+)", page)) <= known


def test_a_defect_of_the_server_is_looked_up_by_what_its_caller_was_told() -> None:
    (told,) = TABLE[Reason.INTERNAL].metadata
    assert told in next_step(TurnlogError("", reason=Reason.INTERNAL.name), "", {})
    assert f"`{told}`" in text_of(ROOT / "docs/operations.md").partition("\n## Logs\n")[2].partition("\n## ")[0]


def test_every_rpc_has_its_permissions_told() -> None:
    page = text_of(ROOT / "docs/permissions.md")
    for key in PERMISSIONS:
        service, _, method = key.partition("/")
        assert f"| `{method}` |" in page.partition(f"## {service}\n")[2].partition("\n## ")[0], key
