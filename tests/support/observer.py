"""An observer of the store that remembers."""

from collections import Counter
from collections.abc import Callable, Mapping

from turnlog_server.store.errors import ErrorClass


class CountingObserver:
    """failures: how often each class was seen. unknown: operations whose outcome was unknown."""

    def __init__(self) -> None:
        self.failures: Counter[ErrorClass] = Counter()
        self.unknown: list[str] = []
        self.lost_hints = 0
        self.stats: Callable[[], Mapping[str, int]] | None = None

    def pool_opened(self, stats: Callable[[], Mapping[str, int]]) -> None:
        self.stats = stats

    def failed(self, op: str, error_class: ErrorClass) -> None:
        self.failures[error_class] += 1

    def commit_unknown(self, op: str) -> None:
        self.unknown.append(op)

    def hints_lost(self) -> None:
        self.lost_hints += 1
