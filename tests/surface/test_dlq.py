"""`oncely dlq`."""

import pytest

from oncely import Oncely
from tests.surface.command import Command, fail


@pytest.fixture
def dead(url: str) -> list[str]:
    """Two jobs in the dead-letter queue, the older first."""
    with Oncely(url) as app:
        app.migrate()
        for kind in ("mail.send", "mail.later"):
            app.enqueue(kind)
        return [fail(app), fail(app)]


def test_the_list_shows_each_job_with_its_error(at: Command, dead: list[str]) -> None:
    lines = at("dlq").out.splitlines()
    assert [line.split()[0] for line in lines[::2]] == dead[::-1]
    assert lines[1] == "    SMTPError: mailbox unavailable"
    assert [job["job_id"] for job in at("dlq", "--json").json()] == dead[::-1]
    assert at("dlq", "--kind", "mail.later").out.split()[0] == dead[1]
    assert len(at("dlq", "--limit", "1", "--json").json()) == 1
    assert len(at("dlq", "--error", "mailbox", "--json").json()) == 2
    assert at("dlq", "--error", "no such text").out == "no such failed jobs\n"


def test_a_dry_run_counts_and_changes_nothing(at: Command, dead: list[str]) -> None:
    assert at("dlq", "--replay", "--dry-run").out == "2 jobs would be replayed\n"
    assert len(at("dlq", "--json").json()) == 2


def test_replay_puts_back_what_matches(at: Command, dead: list[str]) -> None:
    assert at("dlq", "--replay", "--kind", "mail.send").out == "replayed 1 job\n"
    assert [job["job_id"] for job in at("dlq", "--json").json()] == dead[1:]
    assert at("dlq", "--replay", "--json").json() == {"replayed": 1, "matching": 1}
    assert at("dlq").out == "no failed jobs\n"


def test_a_dry_run_of_nothing_and_a_bad_limit_are_refused(at: Command, dead: list[str]) -> None:
    assert at("dlq", "--dry-run").code == 2
    assert at("dlq", "--limit", "0").code == 2
