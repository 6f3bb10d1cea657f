"""Pages of lists. A token is where the next page starts, bound to the request that it belongs to.

Tokens hold no secret and prove nothing: access is checked on every page, and a position that somebody made up leads
nowhere that another request could not.
"""

import binascii
import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from turnlog_server.domain.limits import KIB, PAGE_DEFAULT, PAGE_MAXIMUM, RESPONSE_BYTES
from turnlog_server.domain.pages import Page, Placed, Position, Window
from turnlog_server.domain.refusals import Refusal, invalid

R = TypeVar("R", bound=Message)
T = TypeVar("T", bound=Placed)
Shape = tuple[type[int] | type[str], ...]

FARTHEST: Final = 2**62
"""No position is beyond it, and a statement may add the size of a page to it."""

_HASH_BYTES: Final = 12
# What a response may hold beside its entries: a token, and the tag and length of each entry.
_ENTRY_OVERHEAD: Final = 8
_PAGE_BYTES: Final = RESPONSE_BYTES - 8 * KIB


def page_size(request: Any, default: int = PAGE_DEFAULT, maximum: int = PAGE_MAXIMUM) -> int:
    """How many entries to return: 0 means the default, too many are lowered, and a negative number is refused."""
    if request.page_size < 0:
        raise invalid("page_size", "must not be negative")
    return min(request.page_size or default, maximum)


def token(request: Message, position: Position) -> str:
    """The token that makes `request` go on after `position`."""
    text = json.dumps(position, separators=(",", ":"), ensure_ascii=False).encode()
    return urlsafe_b64encode(_hash(request) + text).decode().rstrip("=")


def page_position(request: Any, *shapes: Shape) -> Position | None:
    """Where `request` goes on, None for the start. Refuses a token that belongs to another request.

    shapes: the types that a position of this list is made of, one of these.
    """
    text: str = request.page_token
    if not text:
        return None
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        values = json.loads(raw[_HASH_BYTES:])
    except (ValueError, binascii.Error, RecursionError):
        raise _foreign() from None
    if raw[:_HASH_BYTES] != _hash(request) or not any(_has_shape(values, shape) for shape in shapes):
        raise _foreign()
    return tuple(values)


def window(
    request: Any, *shape: type[int] | type[str], default: int = PAGE_DEFAULT, maximum: int = PAGE_MAXIMUM
) -> Window:
    """The part of a list that `request` asks for.

    shape: the types that a position of this list is made of: a number or a moment, then an id, where it is left out.
    """
    after = page_position(request, shape) if shape else page_position(request, (int,), (int, str))
    return Window(after, page_size(request, default, maximum))


def fill(request: Message, response: R, field: str, page: Page[T], message_of: Callable[[T], Message]) -> R:
    """`response` with as much of the page as one message may hold, and the token for the rest."""
    entries, room, last = getattr(response, field), _PAGE_BYTES, None
    for item in page.items:
        message = message_of(item)
        room -= message.ByteSize() + _ENTRY_OVERHEAD
        # The first goes along whatever its size: an empty page would never get anybody further.
        if room < 0 and entries:
            break
        entries.append(message)
        last = item
    if last is not None and (page.more or len(entries) < len(page.items)):
        response.next_page_token = token(request, last.position)  # type: ignore[attr-defined]
    return response


def _hash(request: Message) -> bytes:
    """Of all that makes a list: which one it is, and every field of the request but size and token."""
    same = type(request)()
    same.CopyFrom(request)
    for field in ("page_size", "page_token"):
        same.ClearField(field)
    text = same.SerializeToString(deterministic=True)
    return hashlib.sha256(same.DESCRIPTOR.full_name.encode() + b"\0" + text).digest()[:_HASH_BYTES]


def _has_shape(values: object, shape: Shape) -> bool:
    if not isinstance(values, list) or [type(value) for value in values] != list(shape):
        return False
    return all(
        abs(value) <= FARTHEST if isinstance(value, int) else "\0" not in value and value.isprintable()
        for value in values
    )


def _foreign() -> Refusal:
    return invalid("page_token", "does not belong to this request: start again without it")
