"""One line per RPC: descriptors that turn a request type and a response type into a typed method.

    get = Unary("GetSession", v1.GetSessionRequest, v1.GetSessionResponse)
    …
    response = await t.sessions.get("sess_…")

The method takes the request's fields, in their order or by name, and answers the response; the type checker knows both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar

import betterproto2

from turnlog_client.calls import Caller

P = ParamSpec("P")
Response = TypeVar("Response", bound=betterproto2.Message)
Item = TypeVar("Item")


class Service:
    """One service of the contract; subclasses list its RPCs."""

    NAME: str

    def __init__(self, caller: Caller) -> None:
        self._caller = caller


class Unary(Generic[P, Response]):
    """One unary RPC of the service that holds it."""

    def __init__(self, rpc: str, request: Callable[P, betterproto2.Message], response: type[Response]) -> None:
        self.rpc = rpc
        self.request = request
        self.response = response

    def __get__(self, service: Service, owner: type[Service]) -> Call[P, Response]:
        return Call(service._caller, f"/{owner.NAME}/{self.rpc}", self.request, self.response)


class Call(Generic[P, Response]):
    """A unary RPC, ready to be called. Raises TurnlogError."""

    def __init__(
        self,
        caller: Caller,
        path: str,
        request: Callable[P, betterproto2.Message],
        response: type[Response],
        timeout: float | None = None,
    ) -> None:
        self._caller = caller
        self._path = path
        self._request = request
        self._response = response
        self._timeout = timeout

    def within(self, timeout: float) -> Call[P, Response]:
        """The same call with a deadline of its own for each attempt, in seconds."""
        return Call(self._caller, self._path, self._request, self._response, timeout)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Response:
        return await self._caller.unary(self._path, self._request(*args, **kwargs), self._response, self._timeout)


class Paged(Generic[P, Response, Item]):
    """One List RPC of the service that holds it; `items` takes the entries out of a page."""

    def __init__(
        self,
        rpc: str,
        request: Callable[P, betterproto2.Message],
        response: type[Response],
        items: Callable[[Response], Iterable[Item]],
    ) -> None:
        self.rpc = rpc
        self.request = request
        self.response = response
        self.items = items

    def __get__(self, service: Service, owner: type[Service]) -> PagedCall[P, Response, Item]:
        return PagedCall(service._caller, f"/{owner.NAME}/{self.rpc}", self.request, self.response, self.items)


class PagedCall(Call[P, Response], Generic[P, Response, Item]):
    """A List RPC, ready to be called: once for one page, or `each` for the entries of all pages."""

    def __init__(
        self,
        caller: Caller,
        path: str,
        request: Callable[P, betterproto2.Message],
        response: type[Response],
        items: Callable[[Response], Iterable[Item]],
    ) -> None:
        super().__init__(caller, path, request, response)
        self._items = items

    async def each(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Item]:
        """Every entry, page after page, read as the loop goes on."""
        request: Any = self._request(*args, **kwargs)
        while True:
            page: Any = await self._caller.unary(self._path, request, self._response)
            for item in self._items(page):
                yield item
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token
