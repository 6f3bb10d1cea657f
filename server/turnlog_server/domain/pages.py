"""A part of a list, and where the next part starts."""

from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

Position = tuple[int | str, ...]
"""Where an entry stands in its list: the values that the list is ordered by."""

NEWEST: Final[Position] = (2**63 - 1, "")
"""Before the first entry of a list that is ordered by time, newest first."""

FIRST_NAME: Final[Position] = ("",)
"""Before the first entry of a list that is ordered by name."""


class Placed(Protocol):
    """An entry of a list."""

    @property
    def position(self) -> Position:
        """Where it stands."""
        ...


T_co = TypeVar("T_co", bound=Placed, covariant=True)


@dataclass(frozen=True, slots=True)
class Window:
    """Which part is asked for.

    after: the last entry of the part before; None for the first part.
    size: at most how many entries, at least one.
    """

    after: Position | None
    size: int


@dataclass(frozen=True, slots=True)
class Page(Generic[T_co]):
    """A part of a list; `more` tells whether anything follows it."""

    items: tuple[T_co, ...]
    more: bool
