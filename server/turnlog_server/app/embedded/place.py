"""A data root that is ours alone, and a folder in it, or in its stead, that PostgreSQL's user can reach."""

import contextlib
import hashlib
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .processes import Account, EmbeddedError, account_of, account_unprivileged, reaches, user_name, user_shown

SHELTER = Path("/var/lib/turnlog")
_LONGEST_NAME = ".s.PGSQL.65535"
_LOG_KEPT = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """See the package's docstring for what lives where."""

    root: Path
    home: Path
    account: Account | None
    locks: tuple[int, ...]

    @classmethod
    async def claim(cls, data_root: Path) -> "Place":
        root = _root(data_root)
        locks = [folder_lock(root, root)]
        try:
            home = _pointed(root) or root
            if home != root:
                locks.append(folder_lock(home, root))
                _check_not_copied(root, home)
            account = _account(home)
            if not await reaches(account, home):
                assert account is not None
                if home != root or (home / "pgdata").exists():
                    raise EmbeddedError(
                        f"User {account.name} owns {home / 'pgdata'} and can no longer reach it: "
                        "let that user enter the folders above it, or move the data root to where it can."
                    )
                home = await _shelter(root, account)
                locks.append(folder_lock(home, root))
            return cls(root, home, account, tuple(locks))
        except BaseException:
            _unlock(locks)
            raise

    def release(self) -> None:
        _unlock(self.locks)

    @property
    def log(self) -> Path:
        return self.root / "postgres.log"

    def log_open(self) -> IO[bytes]:
        """Opened by us and inherited, so that it lies in the data root even where PostgreSQL's user cannot go."""
        if self.log.exists() and self.log.stat().st_size > _LOG_KEPT:
            self.log.replace(self.log.with_name("postgres.log.1"))
        # Not through a link: as root we may be writing in a folder of somebody else.
        return os.fdopen(os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), "ab")

    def log_since(self, offset: int) -> str:
        with self.log.open("rb") as log:
            log.seek(max(offset, self.log.stat().st_size - 2000))
            return log.read().decode(errors="replace").strip()

    async def socket_folder(self) -> Path:
        """A folder for the Unix socket: whoever can enter it is the database's superuser, so 0700.

        The same one at every start, so that a conninfo outlives a restart. Beside the data if a socket can be there:
        paths have a limit of about a hundred bytes, and some shared file systems have no sockets at all.
        """
        uid = os.geteuid() if self.account is None else self.account.uid
        mark = hashlib.sha256(str(self.home).encode()).hexdigest()[:10]
        temporary = [base / f"turnlog-{uid}-{mark}" for base in (Path(tempfile.gettempdir()), Path("/tmp"))]
        for folder in (self.home / "socket", *temporary):
            if _private(folder, self.account, uid) and await reaches(self.account, folder) and _takes_sockets(folder):
                return folder
        raise EmbeddedError(
            f"No Unix socket can be made below {self.home}, whose path may be too long, and none in {temporary[0]}: "
            "choose a data folder with a shorter path, or remove what is in the way there."
        )

    def socket_remove(self, folder: Path) -> None:
        """What is not in the data root would stay for ever in the temporary directory."""
        if folder.name.startswith("turnlog-"):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _root(data_root: Path) -> Path:
    root = data_root.expanduser().absolute()
    if "\n" in str(root):
        raise EmbeddedError("The path of the data folder holds a line break: choose another one.")
    if not root.exists():
        root.mkdir(parents=True)
        # As root, another user must pass through. It cannot list, and what is private in here has modes of its own.
        root.chmod(0o711 if os.geteuid() == 0 else 0o700)
    if not root.is_dir():
        raise EmbeddedError(f"{root} is not a folder: choose another data folder.")
    return root.resolve()


def folder_lock(folder: Path, root: Path) -> int:
    """An open file that keeps others out of the folder. Raises EmbeddedError, which names who is in there."""
    import fcntl

    handle = os.open(folder / "postgres.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
    except BlockingIOError:
        holder = os.read(handle, 20).decode(errors="replace").strip() or "another one"
        os.close(handle)
        raise EmbeddedError(
            f"The data folder {root} is in use by process {holder}: stop that server, or choose another data folder."
        ) from None
    except BaseException:
        os.close(handle)
        raise
    return handle


def _unlock(locks: tuple[int, ...] | list[int]) -> None:
    for handle in locks:
        os.close(handle)


def _account(home: Path) -> Account | None:
    try:
        owner = (home / "pgdata").stat()
    except FileNotFoundError:
        if os.geteuid() == 0:
            return account_unprivileged()
        if user_name(os.geteuid()) is None:
            raise EmbeddedError(
                f"User id {os.geteuid()} has no name here, and PostgreSQL's initdb needs one: "
                "add it to /etc/passwd, or start the server as another user."
            ) from None
        return None
    if os.geteuid() == 0:
        if owner.st_uid == 0:
            raise EmbeddedError(
                f"{home / 'pgdata'} belongs to root, as whom PostgreSQL refuses to run: "
                f"`chown -R {account_unprivileged().name} {home / 'pgdata'}`, then start again."
            )
        # Whoever made the cluster runs it: a user `postgres` that came later could not read what `nobody` wrote.
        return account_of(owner.st_uid, owner.st_gid)
    if owner.st_uid != os.geteuid():
        raise EmbeddedError(
            f"{home / 'pgdata'} belongs to {user_shown(owner.st_uid)}, and this server runs as "
            f"{user_shown(os.geteuid())}: start it as the user that did before (root, if that was root), or chown it."
        )
    return None


def _pointer(root: Path) -> Path:
    return root / "postgres.path"


def _pointed(root: Path) -> Path | None:
    try:
        home = Path(_pointer(root).read_text().strip())
    except FileNotFoundError:
        return None
    if not home.is_absolute() or not home.is_dir():
        # Never a fresh database in its stead: that would look like every Session gone.
        raise EmbeddedError(
            f"{_pointer(root)} says that the database is in {home}, and there is no such folder: "
            "put it back, or remove that file to start empty."
        )
    return home


def _check_not_copied(root: Path, home: Path) -> None:
    """A data root that was moved keeps its database; a copy of one does not get to share it."""
    note = home / "data-root"
    first = Path(note.read_text().strip())
    if first == root:
        return
    try:
        copied = _pointed(first) == home and not first.samefile(root)
    except (OSError, EmbeddedError):
        copied = False
    if copied:
        raise EmbeddedError(
            f"{root} is a copy of {first}, whose database is in {home}: "
            f"remove {_pointer(root)} to start empty here, or move a dump of that database over."
        )
    note.write_text(f"{root}\n")


async def _shelter(root: Path, account: Account) -> Path:
    try:
        home = _shelter_make(root)
    except OSError:
        home = None
    if home is None or not await reaches(account, home):
        raise EmbeddedError(
            f"User {account.name}, whom root runs PostgreSQL as, cannot reach {root}, because a folder above "
            f"it is private, and there is no place for it in {SHELTER}: choose a data folder such as /srv/turnlog."
        )
    pointer = _pointer(root)
    draft = pointer.with_name("postgres.path.new")
    draft.write_text(f"{home}\n")
    draft.replace(pointer)
    return home


def _shelter_make(root: Path) -> Path:
    if not SHELTER.exists():
        SHELTER.mkdir(parents=True)
        SHELTER.chmod(0o711)
    home = Path(tempfile.mkdtemp(prefix="data-", dir=SHELTER))
    home.chmod(0o711)
    (home / "data-root").write_text(f"{root}\n")
    return home


def _private(folder: Path, account: Account | None, uid: int) -> bool:
    """Whether the folder is there and private. One that a stranger made in the temporary directory is neither."""
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if account is not None and folder.lstat().st_uid == 0:
            account.give(folder)  # just made, or made by a start that was killed here
        found = folder.lstat()
    except OSError:
        return False
    return found.st_uid == uid and found.st_mode & 0o170077 == 0o040000


def _takes_sockets(folder: Path) -> bool:
    """Tried, for the limit differs by system. Also clears what a killed PostgreSQL left; the caller holds the lock."""
    if "," in str(folder):
        return False  # libpq would take it for a list of hosts
    for former in folder.glob(".s.PGSQL.*"):
        former.unlink()
    probe = folder / _LONGEST_NAME
    try:
        with socket.socket(socket.AF_UNIX) as test:
            test.bind(str(probe))
        probe.unlink()
    except OSError:
        return False
    return True
