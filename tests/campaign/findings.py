"""What a checker found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Broken:
    """A guarantee, by its name in docs/guarantees.md, that does not hold, and how that shows."""

    guarantee: str
    session_id: str
    what: str

    def __str__(self) -> str:
        return f"{self.guarantee}: {self.session_id}: {self.what}"
