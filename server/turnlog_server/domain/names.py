"""What people may call things, and what can be an id at all."""

import unicodedata
from typing import Final, TypeVar

from turnlog_server.domain.refusals import Reason, Refusal, invalid, not_found

T = TypeVar("T")

_PRINTED_IN_TEXT: Final = "\n\t\r"


def check_name(field: str, text: str) -> str:
    """A name for people, on one line. Control characters would forge lines in logs and on terminals."""
    if not text.strip():
        raise invalid(field, "must name something")
    return _without_controls(field, text, allowed="")


def check_text(field: str, text: str) -> str:
    """A description for people, on any number of lines."""
    return _without_controls(field, text, allowed=_PRINTED_IN_TEXT)


def check_id(resource: str, identity: str) -> str:
    """An id that could exist. One that no database can hold is as unknown as any other."""
    if "\0" in identity:
        raise not_found(resource, identity)
    return identity


def known(item: T | None, resource: str, identity: str) -> T:
    """The item, where there is one."""
    if item is None:
        raise not_found(resource, identity)
    return item


def already_exists(resource: str, name: str) -> Refusal:
    """A name that must be unique and is taken."""
    return Refusal(
        Reason.ALREADY_EXISTS,
        f"There is a {resource} with the name {name} already: choose another name, or use the one that exists.",
        {"resource": resource, "name": name},
    )


def _without_controls(field: str, text: str, *, allowed: str) -> str:
    for character in text:
        if unicodedata.category(character) == "Cc" and character not in allowed:
            raise invalid(field, f"holds the control character U+{ord(character):04X}")
    return text
