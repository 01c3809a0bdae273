"""Every command once as the script that people run, on each engine."""

import json

from oncely import Oncely
from tests.surface.command import Command, fail, migrations


def test_a_day_at_the_store(oncely: Command, url: str) -> None:
    applied = "".join(f"applied {name}\n" for name in migrations(url))
    assert oncely("migrate", "--url", url).out == applied
    assert oncely("migrate", ONCELY_URL=url).out == "nothing to do: the schema is up to date\n"
    first = oncely("enqueue", "k", "-", "--unique-key", "u", ONCELY_URL=url, stdin="[1]")
    assert (first.code, first.err) == (0, "")
    again = oncely("enqueue", "k", "--unique-key", "u", "--json", "--url", url).json()
    assert again["inserted"] is False
    job_id = again["job_id"]
    assert first.out == f"inserted job {job_id}, pending\n"
    assert job_id in oncely("jobs", "--url", url).out
    assert oncely("show", job_id, "--url", url).out.startswith(f"job {job_id}\n")
    with Oncely(url) as app:
        assert fail(app) == job_id
    assert oncely("replay", job_id, "--url", url).out == f"replayed job {job_id}, pending\n"
    assert oncely("cancel", job_id, "--url", url).out == f"cancelled job {job_id}\n"
    wrong = oncely("replay", job_id, "--url", url, "--json")
    assert (wrong.code, wrong.out) == (1, "")
    assert json.loads(wrong.err)["error"] == "WrongState"
    bad = oncely("enqueue", "k", "{", "--url", url)
    assert (bad.code, bad.out) == (2, "")
    assert oncely("doctor", "--url", url).code == 0
