"""Enums of the contract as enums of the domain: the same names, with the contract's prefix."""

from enum import StrEnum
from typing import Any, Generic, TypeVar

E = TypeVar("E", bound=StrEnum)


class Enum(Generic[E]):
    """Both directions. The domain's empty value, where it has one, is the contract's UNSPECIFIED."""

    def __init__(self, contract: Any, prefix: str, domain: type[E]) -> None:
        self._numbers: dict[E, int] = {}
        for value in domain:
            name = prefix + (value.name if value.value else "UNSPECIFIED")
            self._numbers[value] = contract.Value(name)
        self._values = {number: value for value, number in self._numbers.items()}

    def number(self, value: E) -> int:
        """The contract's number."""
        return self._numbers[value]

    def value(self, number: int) -> E:
        """The domain's value. Raises KeyError for a number that has none."""
        return self._values[number]
