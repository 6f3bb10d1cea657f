"""The runner's folder: its id, the lock that keeps a second runner out, and the harnesses' working folders."""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from base64 import b32hexencode
from pathlib import Path

from turnlog_client.runner.options import OptionsError

_ID = re.compile(r"rnr_[0-9a-v]{26}")
_WORK_PREFIX = "attempt-"


class RunnerFolder:
    """An open runner's folder. The lock goes with the process, however it ends."""

    def __init__(self, path: Path, work_dir: Path | None = None) -> None:
        """Raises OptionsError when the folder cannot be used, or another runner uses it."""
        self._path = path
        self._work = work_dir or path / "work"
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._work.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OptionsError(f"The runner's folder {path} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise OptionsError(f"Another runner uses {path}. Give each runner a folder of its own.") from error
        self.runner_id = self._read_id() or self._make_id()

    def make_work_dir(self) -> Path:
        """An empty folder for one attempt."""
        return Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=self._work))

    def remove_work_dirs(self) -> None:
        """Removes what an earlier life left behind, once nothing of it runs any more."""
        for left in self._work.glob(f"{_WORK_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)

    def close(self) -> None:
        """Lets another runner use the folder."""
        with contextlib.suppress(OSError):
            os.close(self._lock)

    def _read_id(self) -> str | None:
        try:
            text = (self._path / "runner_id").read_text().strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.close()
            raise OptionsError(f"{self._path / 'runner_id'} cannot be read: {error.strerror}.") from error
        if not _ID.fullmatch(text):
            self.close()
            raise OptionsError(f"{self._path / 'runner_id'} holds no runner's id. Remove the file to get a new one.")
        return text

    def _make_id(self) -> str:
        runner_id = "rnr_" + b32hexencode(secrets.token_bytes(16))[:26].decode().lower()
        # Whole or not at all: half an id would be refused at the next start.
        fresh = self._path / "runner_id.new"
        fresh.write_text(runner_id + "\n")
        fresh.replace(self._path / "runner_id")
        return runner_id
