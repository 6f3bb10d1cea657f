"""The files of a tree: which ones count, and their text, within bounds."""

import fnmatch
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILES = 50_000
MAX_FILE_BYTES = 512 << 10
MAX_TREE_BYTES = 256 << 20
_GIT_SECONDS = 10.0

_SKIPPED_FOLDERS = frozenset(
    {
        ".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", "node_modules", "__pycache__", ".mypy_cache",
        ".pytest_cache", ".ruff_cache", ".hypothesis", ".idea", ".vscode", ".turnlog", "dist", "build", "target",
        ".gradle", ".next", ".cache",
    }
)  # fmt: skip
_SKIPPED_ENDINGS = (
    ".png", ".jpg", ".jpeg", ".gif", ".ico", ".pdf", ".zip", ".gz", ".xz", ".bz2", ".whl", ".jar", ".so", ".o", ".a",
    ".dylib", ".dll", ".exe", ".pyc", ".class", ".woff", ".woff2", ".ttf", ".mp4", ".mp3", ".sqlite", ".db", ".lock",
    ".min.js", ".map", ".svg",
)  # fmt: skip
_LOCK_FILES = frozenset({"package-lock.json", "go.sum", "pnpm-lock.yaml"})


@dataclass(frozen=True, slots=True)
class Listing:
    """Paths relative to the root, with `/`, sorted. complete: false when `MAX_FILES` ended the list."""

    paths: tuple[str, ...]
    complete: bool


class Tree:
    """A folder that is only read. Symbolic links are not followed, and nothing outside of it is opened."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve(strict=True)
        if not self.root.is_dir():
            raise NotADirectoryError(f"{root} is not a folder")
        # Where each folder of a path really is, None outside of the tree.
        self._folders: dict[str, Path | None] = {}

    def listing(self) -> Listing:
        """The files that may hold something to read: in a Git checkout those that Git does not ignore."""
        paths = self._from_git() or self._from_walk()
        kept = sorted(path for path in paths if _worth_reading(path))
        return Listing(tuple(kept[:MAX_FILES]), len(kept) <= MAX_FILES)

    def read(self, path: str) -> str | None:
        """A file's text, None for what is not a text file of at most `MAX_FILE_BYTES` inside the tree.

        Bytes that are not UTF-8 become U+FFFD.
        """
        try:
            # One that is a link, or below one, or that became one since it was listed.
            descriptor = os.open(self._inside(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (OSError, ValueError):
            return None
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_FILE_BYTES:
            os.close(descriptor)
            return None
        with os.fdopen(descriptor, "rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES or b"\0" in raw[:8192]:
            return None
        return raw.decode("utf-8", "replace")

    def texts(self, paths: tuple[str, ...], stopped: Callable[[], bool]) -> Iterator[tuple[str, str]]:
        """The text files among `paths`, until `MAX_TREE_BYTES` were read or `stopped` says so."""
        left = MAX_TREE_BYTES
        for path in paths:
            if stopped() or left <= 0:
                return
            text = self.read(path)
            if text is not None:
                left -= len(text)
                yield path, text

    def _inside(self, path: str) -> Path:
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            resolved = (self.root / folder).resolve()
            self._folders[folder] = resolved if resolved.is_relative_to(self.root) else None
        inside = self._folders[folder]
        if inside is None or name in {"", ".", ".."}:
            raise ValueError(f"{path} is not a file inside the tree")
        return inside / name

    def _from_git(self) -> list[str]:
        # Options first: a checkout must not make Git run programs of its own (`core.fsmonitor`).
        command = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false", "ls-files", "-z"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        try:
            done = subprocess.run(
                [*command, "--cached", "--others", "--exclude-standard"],
                cwd=self.root,
                env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_GIT_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return []
        return [os.fsdecode(path) for path in done.stdout.split(b"\0") if path]

    def _from_walk(self) -> list[str]:
        ignored = _ignore_patterns(self.root)
        found: list[str] = []
        for folder, folders, names in os.walk(self.root, followlinks=False):
            inside = Path(folder).relative_to(self.root).as_posix()
            prefix = "" if inside == "." else f"{inside}/"
            folders[:] = sorted(
                each for each in folders if each not in _SKIPPED_FOLDERS and not _ignored(f"{prefix}{each}", ignored)
            )
            found += [f"{prefix}{name}" for name in names if not _ignored(f"{prefix}{name}", ignored)]
            if len(found) > MAX_FILES:
                break
        return found


def _worth_reading(path: str) -> bool:
    *folders, name = path.split("/")
    if any(folder in _SKIPPED_FOLDERS for folder in folders):
        return False
    return not name.lower().endswith(_SKIPPED_ENDINGS) and name not in _LOCK_FILES


def _ignore_patterns(root: Path) -> list[str]:
    """The root's .gitignore, roughly: no exceptions, no files further down."""
    try:
        lines = (root / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip().strip("/") for line in lines if line.strip() and not line.startswith(("#", "!"))]


def _ignored(path: str, patterns: list[str]) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(path, pattern) for pattern in patterns)
