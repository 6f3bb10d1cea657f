"""What a page shows of a terminal, typed into a real shell line by line."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from support.server_process import CLEAN

MARK = "-- next line --"
SECONDS = 60


def blocks_of(page: str) -> list[str]:
    """The page's blocks of commands and what they print."""
    return re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


async def shelled(script: str, *, cwd: Path, options: Sequence[str] = (), **environment: str) -> tuple[int, str]:
    """Runs a script in bash until its first error; its exit code, and all that it printed."""
    shell = await asyncio.create_subprocess_exec(
        "bash", "-e", *options, "-c", script, cwd=cwd, env=CLEAN | environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await shell.communicate()
    finally:
        if shell.returncode is None:
            shell.kill()
    assert shell.returncode is not None
    return shell.returncode, said.decode()


async def typed(blocks: list[str], address: str, tree: Path) -> None:
    """Types every command of the blocks into one shell, and looks at what each printed."""
    told = [each for block in blocks for each in commands(block)]
    script = "".join(f"{line}\necho '{MARK}'\n" for line, _ in told).replace("127.0.0.1:7777", address)
    code, printed = await shelled(script, cwd=tree, options=("-o", "pipefail"), HOME=str(tree), LANG="C.UTF-8")
    said = printed.split(f"{MARK}\n")
    assert code == 0, f"{told[len(said) - 1][0]}\nended with {code}\n{said[-1]}"
    for (line, shown), printed in zip(told, said, strict=False):
        assert re.search(pattern(shown), printed, re.DOTALL), f"{line}\nprinted\n{printed}"


def commands(block: str) -> list[tuple[str, str]]:
    """Each command with the lines below it, which are what it prints."""
    first, *others = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert not first
    return [(line, shown) for line, _, shown in (each.partition("\n") for each in others)]


def pattern(shown: str) -> str:
    """What is shown, in order; `…` stands for anything, and a space for any number of them."""
    return r"\s+".join(re.escape(word).replace("…", ".*") for word in shown.split())
