"""A NUL in a field, a query or a path: PostgreSQL cannot store it, and no page fails by it."""

from typing import Any

from oncely import Oncely
from oncely.surface.dashboard.pages import PAGES
from tests.engine.steps import engine_of
from tests.surface.http.server import Client, in_thread

NUL = "a\0b"
FIELDS = (
    "name", "key", "job", "job_id", "effect", "note", "reason", "role", "scope", "queue", "queues",
    "kind", "error", "q", "state", "group", "group_key", "tag", "url", "secret", "mode", "cursor",
    "before", "after", "id", "ids", "result", "happened", "method", "path", "caller", "who", "act",
    "about", "since", "until",
)  # fmt: skip


def test_a_nul_fails_no_page(app: Oncely) -> None:
    job_id = app.enqueue("k", queue="q").job_id
    fields = dict.fromkeys(FIELDS, NUL)
    with in_thread(app) as url, Client(f"{url}/dashboard") as site:
        for page in PAGES:
            path = page.path.replace("{queue}", "q").replace("{id}", job_id)
            sent = {"data": fields} if page.method == "POST" else {"params": fields}
            asked: list[tuple[str, dict[str, Any]]] = [
                (path, sent),
                (path, {**sent, "headers": {"hx-request": "true"}}),
            ]
            asked += [(path, {key: {name: NUL}}) for key in sent for name in FIELDS[:3]]
            if "{" in page.path:
                bad = page.path.replace("{queue}", "a%00b").replace("{id}", "a%00b")
                asked.append((bad, {}))
            for where, how in asked:
                answer = site.request(page.method, where, **how)
                assert answer.status_code < 500, (engine_of(app), page.method, where, answer.text)
