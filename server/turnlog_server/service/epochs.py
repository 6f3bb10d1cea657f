"""The permission epochs that this replica knows. Whoever reads a newer one says so here; whoever cached hears of it."""

from collections.abc import Callable


class Epochs:
    """The newest epoch seen for each workspace."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._listeners: list[Callable[[str, int], None]] = []

    def listen(self, heard: Callable[[str, int], None]) -> None:
        """`heard(workspace_id, epoch)` is called once for each epoch that is newer than all before."""
        self._listeners.append(heard)

    def note(self, workspace_id: str, epoch: int) -> None:
        """Somebody read this epoch."""
        if epoch > self._known.get(workspace_id, 0):
            self._known[workspace_id] = epoch
            for heard in self._listeners:
                heard(workspace_id, epoch)

    def get(self, workspace_id: str) -> int | None:
        """The newest epoch seen; None where none was."""
        return self._known.get(workspace_id)
