"""The first setup of a production server, pasted from the page into a shell, on a server that has nothing yet."""

import re
import sys
from pathlib import Path

from support.console import shelled
from support.embedded import open_ground
from support.server_process import CLEAN, server

PAGE = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text("utf-8")


def setup() -> str:
    """Its lines, in order; the runner goes on beside the shell, and ends with it."""
    section = PAGE.partition("\n## The first workspace and key\n")[2].partition("\n## ")[0]
    lines = "\n".join(re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))
    made = re.sub(r"^(turnlog-server workspace create \w+).*$", r"MANAGER=$(\1)", lines, flags=re.MULTILINE)
    beside = re.sub(r"^(turnlog .*runner start .*)$", r"\1 & trap 'kill %1; wait' EXIT", made, flags=re.MULTILINE)
    return beside.replace("tlk_…", "$MANAGER")


async def test_the_first_setup_ends_with_an_answer() -> None:
    script = setup()
    assert script.count("$MANAGER") == 1
    assert "trap" in script
    with open_ground() as folder:
        async with server("serve", "--listen", "127.0.0.1:0", "--no-embedded-fsync", cwd=folder) as serving:
            script = script.replace("turnlog.example:7777", await serving.ready())
            path = f"{Path(sys.executable).parent}:{CLEAN['PATH']}"
            code, said = await shelled(script, cwd=folder, options=("-m",), PATH=path, HOME=str(folder))
    assert code == 0, said
    shown = said.splitlines()
    assert any("run.succeeded" in line for line in shown)
    assert any("agent.message" in line for line in shown)
