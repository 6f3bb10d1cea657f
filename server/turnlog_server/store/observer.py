"""What the store tells whoever counts."""

from collections.abc import Callable, Mapping
from typing import Protocol

from turnlog_server.store.errors import ErrorClass


class StoreObserver(Protocol):
    """Hooks for metrics. They are called on the event loop and must return at once."""

    def pool_opened(self, stats: Callable[[], Mapping[str, int]]) -> None:
        """A pool is open; `stats` returns its figures of this moment."""
        ...

    def failed(self, op: str, error_class: ErrorClass) -> None:
        """One attempt of `op` failed; for most classes another follows."""
        ...

    def commit_unknown(self, op: str) -> None:
        """Nobody knows whether an attempt of `op` was applied."""
        ...

    def hints_lost(self) -> None:
        """The connection that listens for hints broke."""
        ...


class SilentObserver:
    """Counts nothing."""

    def pool_opened(self, stats: Callable[[], Mapping[str, int]]) -> None:
        pass

    def failed(self, op: str, error_class: ErrorClass) -> None:
        pass

    def commit_unknown(self, op: str) -> None:
        pass

    def hints_lost(self) -> None:
        pass
