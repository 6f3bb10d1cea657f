"""How many more Runs the server may offer. Pure."""


class Credits:
    """Keeps what the runner granted on this stream, so that it grants again only when something changed.

    A `Ready` replaces what is left. One that crosses an Offer on its way must not give the Offer's place away twice:
    so an Offer is answered before the next Ready is sent, and the server, which sees the two in that order, knows for
    each Offer whether the Ready counted it.
    """

    def __init__(self) -> None:
        self._left: int | None = 0

    def reset(self) -> None:
        """A new stream: nothing is granted on it."""
        self._left = 0

    def used(self) -> None:
        """The server offered a Run. One that it had no credit for means that it counts otherwise: it is told again."""
        self._left = self._left - 1 if self._left else None

    def grant(self, free: int) -> int | None:
        """What to grant now that `free` places are free; None if the server has just that."""
        if free == self._left:
            return None
        self._left = free
        return free
