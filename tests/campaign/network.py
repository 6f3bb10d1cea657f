"""A network of the campaign's own: replicas have addresses on its loopback, and packets to and from them can be lost.

Needs root on Linux, for it runs in namespaces of its own: what it does to packets and disks ends with it, and nobody
else's are touched.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

INSIDE = "TURNLOG_CAMPAIGN_NAMESPACE"
TOOLS = ("unshare", "ip", "iptables", "mount")


def enter_own() -> None:
    """Starts this program again in namespaces of its own. Returns where it is there already, or cannot be."""
    if os.environ.get(INSIDE) or not possible():
        return
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv])


def possible() -> bool:
    """Whether namespaces can be made, with packets to drop in them."""
    if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in TOOLS):
        return False
    trial = "ip link set lo up && iptables -A INPUT -j ACCEPT && mount -t tmpfs none /mnt"
    return subprocess.run(["unshare", "--net", "--mount", "sh", "-c", trial], capture_output=True).returncode == 0


def inside() -> bool:
    """Whether this process is in namespaces of its own."""
    return INSIDE in os.environ


def up() -> None:
    """Loopback begins to work."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def mount_memory(folder: Path, megabytes: int) -> None:
    """A disk of this size that only this campaign sees."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "none", folder], check=True)


async def rule(seconds: float, *rules: str) -> None:
    """Packets are treated so for this long."""
    applied = []
    try:
        for each in rules:
            await _iptables("-A", each)
            applied.append(each)
        await asyncio.sleep(seconds)
    finally:
        for each in applied:
            await _iptables("-D", each)


async def _iptables(how: str, rule: str) -> None:
    process = await asyncio.create_subprocess_exec("iptables", "-w", how, *rule.split())
    if await process.wait():
        raise RuntimeError(f"iptables {how} {rule} failed")
