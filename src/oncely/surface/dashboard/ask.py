"""What a page is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from oncely.model.user import Role
from oncely.store.engine import Access
from oncely.store.plan import Plan
from oncely.surface.app import Oncely

if TYPE_CHECKING:
    from oncely.surface.dashboard.site import Site

T = TypeVar("T")
Tone = Literal["good", "bad"]


class Viewer(msgspec.Struct, frozen=True):
    """Who looks. A reader changes nothing."""

    name: str
    role: Role
    csrf: str

    def may(self, role: Role) -> bool:
        return role == "reader" or self.role == "operator"


NOBODY: Final = Viewer("nobody", "reader", "")
"""Who has not signed in yet: sees the pages that are public."""


class View(msgspec.Struct, frozen=True):
    """A page to be rendered from a template."""

    template: str
    data: Mapping[str, Any] = {}
    status: int = 200
    headers: Mapping[str, str] = {}


class Go(msgspec.Struct, frozen=True):
    """To another page of the dashboard, where `said` is shown once."""

    path: str
    said: str | None = None
    tone: Tone = "good"
    headers: Sequence[tuple[str, str]] = ()


class Refusal(Exception):
    """A page that says what was wrong and what to do."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.detail = detail


class Ask:
    """One request for a page. `path` holds the parts in braces of the page's own path."""

    def __init__(
        self,
        site: Site,
        *,
        viewer: Viewer,
        root: str,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        form: Mapping[str, Sequence[str]],
        headers: Mapping[str, str],
        address: str | None,
        secure: bool,
    ) -> None:
        self.site = site
        self.viewer = viewer
        self.root = root
        self.path = path
        self.headers = headers
        self.address = address
        self.secure = secure
        self._query = query
        self._form = form

    @property
    def app(self) -> Oncely:
        return self.site.app

    @property
    def query(self) -> dict[str, str]:
        """Of a name that is given twice, the last. What was left empty is absent."""
        return {name: values[-1] for name, values in self._query.items() if values[-1] != ""}

    def query_list(self, name: str) -> list[str]:
        return list(self._query.get(name, ()))

    @property
    def form(self) -> dict[str, str]:
        return {name: values[-1] for name, values in self._form.items()}

    def form_list(self, name: str) -> list[str]:
        return list(self._form.get(name, ()))

    async def run(self, make: Callable[[bool], Plan[T]], access: Access = "read") -> T:
        return await self.site.service.ask(make, access)

    def url(self, path: str) -> str:
        return self.root + path


class Page(msgspec.Struct, frozen=True):
    """One address of the dashboard. `nav` is its name in the navigation, if it is there. A page
    with `public` is shown before anybody has signed in."""

    method: Literal["GET", "POST"]
    path: str
    act: Callable[[Ask], Awaitable[View | Go]]
    title: str = ""
    nav: str | None = None
    role: Role | None = None
    public: bool = False

    @property
    def needed(self) -> Role:
        return self.role or ("reader" if self.method == "GET" else "operator")
