"""Planted bugs: does anybody notice? `python -m tests.planted [--list] [part of a name ...]`.

Each bug is put into a copy of the source tree, by exact replacement of text; then the tests that
are named for it run against the copy, and at least one must turn red. The plain path through the
store must stay green meanwhile, so that a bug is found for what it does, and not because nothing
works any more. On the copy without bugs all the tests named here must be green.

A test that does not end is red only for a bug that says so (`hangs`): with any other bug it may be
the machine that is too busy, and that proves nothing.
"""

import argparse
import asyncio
import os
import re
import shlex
import shutil
import signal
import sys
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cluster import Cluster
from tests.scratch import use_memory

ROOT = Path(__file__).parents[1]
TEST_SECONDS = 90
"""A test that takes longer hangs. On the copy without bugs none of them does."""
RUN_SECONDS = 1800
"""A bound against a run of pytest that never ends. To reach it is an error, and no catch."""
PYTEST = (
    *(sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider"),
    *("--timeout", str(TEST_SECONDS)),
)
RESULT = re.compile(r"^(\S+::.+?) (PASSED|FAILED|ERROR)\b", re.MULTILINE)
UNDER_WAY = re.compile(r"^(\S+::.+?) \++ Timeout \++$", re.MULTILINE)

WORKER = "tests/engine/test_worker.py::"
ROWS = "tests/engine/test_rows.py::"
DELIVERY = "tests/engine/test_delivery.py::"
LEASES = "tests/engine/test_leases.py::"
CLOCK = "tests/engine/test_clock.py::"
SWAP = "tests/engine/test_swap.py::"
TOGETHER = "tests/engine/test_together.py::"
AT_ONCE = "tests/engine/test_at_once.py::"
TURNS = "tests/engine/test_by_turns.py::"
AHEAD = "tests/engine/test_ahead.py::"
DEATHS = "tests/crash/test_ahead.py::"
LOST_ANSWERS = "tests/crash/test_lost_answers.py::"
STOPS = "tests/crash/test_server_stops_under_workers.py::"
STORE_FAILURES = "tests/engine/test_store_failures.py::"
DEFERS = "tests/engine/test_defers.py::"
DIED_TOGETHER = "test_of_jobs_that_died_together_none_is_a_poison_pill_until_it_dies_alone"
FETCHED_AHEAD = "test_what_a_dead_worker_had_fetched_ahead_counts_one_crash_and_no_more"
PLAIN_PATH = f"{WORKER}test_what_the_handler_returns_is_kept_as_the_result"

SQLITE_EPOCHS = "where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)"
SQLITE_FENCE = "select l.epoch, l.nonce, m.value"
ENDED = "in ('completed', 'failed', 'cancelled')"


@dataclass(frozen=True)
class Edit:
    """In this file below src/oncely, every `old` becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    plain: str = PLAIN_PATH
    """What must stay green."""
    hangs: bool = False
    """What the bug does is that something never ends."""


def on_postgres(name: str, file: str, *edits: tuple[str, str], tests: Sequence[str]) -> Bug:
    return _on("postgres", name, file, edits, tests)


def on_sqlite(name: str, file: str, *edits: tuple[str, str], tests: Sequence[str]) -> Bug:
    return _on("sqlite", name, file, edits, tests)


def _on(
    engine: str, name: str, file: str, edits: Iterable[tuple[str, str]], tests: Sequence[str]
) -> Bug:
    return Bug(
        f"{name}, on {engine}",
        tuple(Edit(f"store/{engine}/{file}.sql", old, new) for old, new in edits),
        tuple(f"{test}[{engine}]" for test in tests),
        f"{PLAIN_PATH}[{engine}]",
    )


BUGS: tuple[Bug, ...] = (
    on_postgres(
        "settle without the epoch",
        "settle",
        ("where l.epoch in (select i.epoch from input i)", "where true"),
        ("and m.epoch = i.epoch ", ""),
        tests=[f"{DELIVERY}test_the_right_epoch_with_another_nonce_settles_nothing"],
    ),
    on_sqlite(
        "settle without the epoch",
        "settle",
        (SQLITE_EPOCHS, ""),
        (SQLITE_FENCE, "select json_extract(d.value, '$.epoch'), l.nonce, m.value"),
        tests=[f"{DELIVERY}test_the_right_epoch_with_another_nonce_settles_nothing"],
    ),
    on_postgres(
        "settle without the nonce",
        "settle",
        (" and m.nonce = i.nonce", ""),
        tests=[f"{DELIVERY}test_the_right_epoch_with_another_nonce_settles_nothing"],
    ),
    on_sqlite(
        "settle without the nonce",
        "settle",
        (SQLITE_FENCE, "select l.epoch, json_extract(d.value, '$.nonce'), m.value"),
        tests=[f"{DELIVERY}test_the_right_epoch_with_another_nonce_settles_nothing"],
    ),
    on_postgres(
        "settle by job id",
        "settle",
        ("where l.epoch in (select i.epoch from input i)", "where true"),
        (" and m.epoch = i.epoch and m.nonce = i.nonce", ""),
        tests=[f"{DELIVERY}test_an_older_epoch_settles_nothing"],
    ),
    on_sqlite(
        "settle by job id",
        "settle",
        (SQLITE_EPOCHS, ""),
        (
            SQLITE_FENCE,
            "select json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'), m.value",
        ),
        tests=[f"{DELIVERY}test_an_older_epoch_settles_nothing"],
    ),
    Bug(
        "a refused settle is taken for done",
        (
            Edit(
                "store/deliver.py",
                'accepted.update((yield document("settle_late", late)))',
                'accepted.update((yield document("settle_late", late)))\n'
                "        accepted.update(s.execution for s in late)",
            ),
        ),
        (f"{DELIVERY}test_an_older_epoch_settles_nothing",),
    ),
    Bug(
        "a defer counts as an attempt",
        (Edit("model/outcome.py", "attempts=standing.attempt - 1", "attempts=standing.attempt"),),
        (f"{WORKER}test_defer_burns_no_attempt",),
    ),
    Bug(
        "a retry counts no attempt",
        (
            Edit(
                "model/outcome.py",
                "attempts=standing.attempt,\n",
                "attempts=min(standing.attempt - 1, 1),\n",
            ),
        ),
        (f"{WORKER}test_an_exception_is_retried_until_the_attempts_are_used_up",),
        hangs=True,
    ),
    on_postgres(
        "a retry frees the unique key",
        "settle",
        (f"where h.state {ENDED}", "where true"),
        tests=[f"{WORKER}test_a_retry_waits_and_keeps_the_unique_key"],
    ),
    on_sqlite(
        "a retry frees the unique key",
        "settle",
        (f"json_extract(d.value, '$.state') {ENDED}", "true"),
        tests=[f"{WORKER}test_a_retry_waits_and_keeps_the_unique_key"],
    ),
    Bug(
        "the worker's clock says when a lease runs out",
        (
            Edit(
                "store/claim.py",
                '"lease_us": round(lease_seconds * 1_000_000)',
                '"lease_us": round((__import__("time").time() + lease_seconds) * 1_000_000)',
            ),
            Edit(
                "store/postgres/claim.sql",
                "c.now + :lease_us * interval '1 microsecond'",
                "timestamptz 'epoch' + :lease_us * interval '1 microsecond'",
            ),
            Edit("store/sqlite/claim.sql", "t.now + :lease_us", ":lease_us"),
        ),
        (f"{CLOCK}test_a_lease_lasts_as_long_as_was_asked_for",),
    ),
    Bug(
        "the worker's clock says how long a lease is renewed",
        (
            Edit(
                "store/deliver.py",
                "lease_us=_microseconds(lease_seconds))",
                'lease_us=_microseconds(__import__("time").time() + lease_seconds))',
            ),
            Edit("store/postgres/renew.sql", "clock_timestamp() +", "timestamptz 'epoch' +"),
            Edit("store/sqlite/renew.sql", "= (select now from oncely_clock) + ", "= "),
        ),
        (f"{CLOCK}test_a_renewed_lease_lasts_as_long_as_was_asked_for",),
    ),
    on_postgres(
        "a late end is accepted although another holds the job",
        "settle_late",
        ("from mine m join gone g on g.id = m.id", "from mine m"),
        tests=[f"{WORKER}test_a_late_end_is_refused_if_somebody_else_has_the_job"],
    ),
    on_sqlite(
        "a late end is accepted although another holds the job",
        "settle_late",
        ("cross join oncely_ready r", "left join oncely_ready r"),
        tests=[f"{WORKER}test_a_late_end_is_refused_if_somebody_else_has_the_job"],
    ),
    on_postgres(
        "a late end without the nonce",
        "settle_late",
        (" and x.nonce = i.nonce", ""),
        tests=[f"{LEASES}test_a_late_end_with_another_nonce_is_refused"],
    ),
    on_sqlite(
        "a late end without the nonce",
        "settle_late",
        ("and e.nonce = json_extract(d.value, '$.nonce') ", ""),
        tests=[f"{LEASES}test_a_late_end_with_another_nonce_is_refused"],
    ),
    on_postgres(
        "any end of the job is taken for one's own",
        "settled",
        ("where i.epoch = (select o.epoch ", "where i.epoch <= (select o.epoch "),
        tests=[f"{LEASES}test_what_another_execution_settled_is_not_taken_for_ones_own"],
    ),
    on_sqlite(
        "any end of the job is taken for one's own",
        "settled",
        (" and o.epoch = json_extract(i.value, '$.epoch')", ""),
        tests=[f"{LEASES}test_what_another_execution_settled_is_not_taken_for_ones_own"],
    ),
    on_postgres(
        "a whole lease without the nonce",
        "settle_whole",
        ("(l.epoch, l.nonce, cardinality(l.ids)) in (", "(l.epoch, cardinality(l.ids)) in ("),
        ("select i.epoch, i.nonce, i.size from input i", "select i.epoch, i.size from input i"),
        tests=[f"{SWAP}test_with_another_fence_nothing_is_written"],
    ),
    on_sqlite(
        "a whole lease without the nonce",
        "settle_whole",
        ("l.nonce = json_extract(d.value, '$.nonce')", "true"),
        tests=[f"{SWAP}test_with_another_fence_nothing_is_written"],
    ),
    on_postgres(
        "a whole lease without its jobs",
        "settle_whole",
        ("(l.epoch, l.nonce, cardinality(l.ids)) in (", "(l.epoch, l.nonce) in ("),
        ("select i.epoch, i.nonce, i.size from input i", "select i.epoch, i.nonce from input i"),
        tests=[f"{SWAP}test_a_lease_that_does_not_hold_exactly_so_many_jobs_is_left_alone"],
    ),
    on_sqlite(
        "a whole lease without its jobs",
        "settle_whole",
        ("array_length(l.ids) = json", "array_length(l.ids) <= json"),
        tests=[f"{SWAP}test_a_lease_that_does_not_hold_exactly_so_many_jobs_is_left_alone"],
    ),
    Bug(
        "results in the order in which they came",
        (Edit("worker/ends.py", "                lease.sort(key=_place)\n", ""),),
        (f"{SWAP}test_every_result_and_attempt_is_kept_with_its_job",),
    ),
    Bug(
        "results in another order than the jobs",
        (
            Edit(
                "store/swap.py",
                "results = list(map(_result, lease))",
                "results = list(map(_result, reversed(lease)))",
            ),
        ),
        (f"{SWAP}test_every_result_and_attempt_is_kept_with_its_job",),
    ),
    Bug(
        "a whole lease forgets the attempts",
        (
            Edit(
                "store/swap.py",
                "attempts if max(attempts) > 1 else []",
                "attempts if max(attempts) > 9 else []",
            ),
        ),
        (f"{SWAP}test_what_is_left_out_of_the_message_is_filled_in",),
    ),
    on_postgres(
        "a whole lease keeps its unique keys",
        "settle_whole",
        ("where o.is_unique", "where not o.is_unique"),
        tests=[f"{SWAP}test_unique_keys_are_free_again_and_those_of_others_are_not"],
    ),
    on_sqlite(
        "a whole lease keeps its unique keys",
        "settle_whole",
        (
            "where json_extract(d.value, '$.is_unique')",
            "where not json_extract(d.value, '$.is_unique')",
        ),
        tests=[f"{SWAP}test_unique_keys_are_free_again_and_those_of_others_are_not"],
    ),
    Bug(
        "what goes together is done one by one, on postgres",
        (
            Edit(
                "store/postgres/wire.py",
                "results = self.wait(_sent(self.pgconn, parts))",
                "results = [r for p in parts for r in self.wait(_sent(self.pgconn, [p]))]",
            ),
        ),
        (
            f"{SWAP}test_what_goes_together_is_done_whole_or_not_at_all",
            f"{TOGETHER}test_it_is_done_whole_or_not_at_all",
        ),
    ),
    Bug(
        "the first result is taken for the whole answer, on postgres",
        (
            Edit(
                "store/postgres/wire.py",
                "        for result in results:\n            if result.status == _REFUSED:",
                "        for result in results[:1]:\n            if result.status == _REFUSED:",
            ),
            Edit("store/postgres/wire.py", "if len(results) != expected:", "if not results:"),
        ),
        (
            f"{LOST_ANSWERS}test_a_session_that_ends_between_its_answer_and_its_commit"
            "_has_done_nothing",
        ),
    ),
    Bug(
        "the end of a pipeline is not awaited, on postgres",
        (
            Edit(
                "store/postgres/wire.py",
                "if [result.status for result in results[statements:]] == [_END]:",
                "if results[statements:]:",
            ),
        ),
        (f"{LOST_ANSWERS}test_a_pipeline_that_ends_before_its_commit_has_done_nothing",),
    ),
    Bug(
        "what goes together is done one by one, behind a pooler",
        (
            Edit(
                "store/postgres/engine.py",
                "        with connection.pipeline():\n",
                "        if connection:\n",
            ),
        ),
        (f"{TOGETHER}test_it_is_done_whole_or_not_at_all",),
    ),
    Bug(
        "what goes together is done one by one, on sqlite",
        (
            Edit(
                "store/sqlite/engine.py",
                "return [(self._ask(connection, part),) for part in statement.parts]",
                "return [\n                (self._ask(connection, part),)\n"
                "                for part in statement.parts\n"
                "                if connection.executescript('commit; begin immediate')\n"
                "            ]",
            ),
        ),
        (f"{SWAP}test_what_goes_together_is_done_whole_or_not_at_all",),
    ),
    Bug(
        "a swap whose answer was lost is sent again",
        (Edit("store/swap.py", "    if again:\n        return None\n", ""),),
        (f"{DEATHS}test_the_answer_to_a_swap_is_lost",),
    ),
    Bug(
        "a worker takes two leases with one epoch for one",
        (
            Edit("worker/ends.py", "fence = claimed.fence\n", "fence = claimed.fence.epoch\n"),
            Edit("worker/ends.py", "[job.fence] = job.of", "[job.fence.epoch] = job.of"),
        ),
        (f"{LEASES}test_an_end_from_before_a_failover_settles_nothing_of_a_lease_that_is_held",),
        hangs=True,
    ),
    Bug(
        "two ends of one job and one epoch are taken for one",
        (
            Edit(
                "store/deliver.py", "return self.id, self.epoch, self.nonce", "return self.id, 0, 0"
            ),
            Edit(
                "store/deliver.py",
                'accepted.update((yield document("settle", waiting)))',
                'accepted.update((id, 0, 0) for id, *_ in (yield document("settle", waiting)))',
            ),
        ),
        (f"{LEASES}test_ends_of_two_leases_with_one_epoch_are_told_apart",),
    ),
    on_postgres(
        "a worker renews leases that it does not know of",
        "renew",
        (
            "    where l.epoch = any (array(select k.epoch from known k)) and l.worker = :worker\n"
            "        and (l.epoch, l.nonce) in (select k.epoch, k.nonce from known k)\n",
            "    where l.worker = :worker\n",
        ),
        tests=[f"{LEASES}test_a_worker_renews_only_the_leases_that_it_knows_of"],
    ),
    on_sqlite(
        "a worker renews leases that it does not know of",
        "renew",
        (" and (epoch, nonce) in (", " and 0 < (select count(*) from json_each(:doc)) or 0 = ("),
        tests=[f"{LEASES}test_a_worker_renews_only_the_leases_that_it_knows_of"],
    ),
    on_postgres(
        "a renewal revives a lease that has run out",
        "renew",
        ("l.expires_at > clock_timestamp() or", "true or"),
        tests=[f"{LEASES}test_a_lease_that_has_run_out_is_not_renewed_and_may_still_be_ended"],
    ),
    on_sqlite(
        "a renewal revives a lease that has run out",
        "renew",
        (" and expires_at > (select now from oncely_clock)", ""),
        tests=[f"{LEASES}test_a_lease_that_has_run_out_is_not_renewed_and_may_still_be_ended"],
    ),
    Bug(
        "a lease that a transaction has locked is taken for lost",
        (
            Edit(
                "store/postgres/renew.sql",
                "from mine m\nwhere m.epoch not in (select f.epoch from free f)",
                "from mine m where false",
            ),
        ),
        (f"{LEASES}test_a_lease_that_a_transaction_has_locked_is_held_and_not_waited_for",),
    ),
    Bug(
        "a renewal waits for a transaction that has locked a lease",
        (
            Edit(
                "store/postgres/renew.sql",
                "    for no key update skip locked\n",
                "    for no key update\n",
            ),
        ),
        (f"{LEASES}test_a_lease_that_a_transaction_has_locked_is_held_and_not_waited_for",),
        hangs=True,
    ),
    Bug(
        "a lease that was renewed while it was locked is taken from its worker",
        (
            Edit(
                "store/postgres/reclaim.sql",
                "and k.expires_at > (select clock_timestamp())",
                "and false",
            ),
        ),
        (
            f"{LEASES}test_a_lease_that_a_transaction_has_locked_is_held_and_not_waited_for",
            f"{LEASES}test_a_transaction_that_fails_after_its_lease_has_run_out_counts_no_crash",
        ),
    ),
    Bug(
        "a claim is taken in after an end that waits for a locked lease",
        (Edit("worker/exchange.py", "            self._take_in(claimed)\n", ""),),
        (f"{LEASES}test_a_claim_is_begun_though_an_end_waits_for_a_locked_lease",),
        hangs=True,
    ),
    Bug(
        "a transaction of a handler holds up all jobs of its worker",
        (Edit("worker/hands.py", "if each.context.may_hold_lease}", "if False}"),),
        (f"{LEASES}test_a_transaction_of_one_handler_holds_up_no_other_job",),
        hangs=True,
    ),
    Bug(
        "who stops keeps what it has in hand",
        (
            Edit(
                "worker/worker.py",
                "        self._hand_back()\n        while self._running",
                "        while self._running",
            ),
        ),
        (f"{AHEAD}test_who_is_told_to_stop_hands_back_at_once_what_it_has_not_begun",),
        hangs=True,
    ),
    Bug(
        "what is in hand is kept for ever",
        (
            Edit(
                "worker/hands.py",
                "- self._hand[0][0] > self._pace.hand_seconds",
                "- self._hand[0][0] > self._pace.hand_seconds + 1_000",
            ),
        ),
        (f"{AHEAD}test_what_is_not_begun_in_time_goes_to_others_untouched",),
        hangs=True,
    ),
    Bug(
        "what is in hand is dropped when a renewal fails",
        (
            Edit(
                "worker/hands.py",
                "tried=False), 0.0)\n                self._wake.set()\n",
                "tried=False), 0.0)\n                self._ends._singles.pop()\n",
            ),
        ),
        (f"{AHEAD}test_what_is_in_hand_is_not_lost_if_the_store_did_not_answer",),
        hangs=True,
    ),
    Bug(
        "a job that was cancelled in hand is begun",
        (Edit("worker/worker.py", "        self._keep_in_hand(known, held)\n", ""),),
        (f"{AHEAD}test_a_job_that_is_cancelled_in_hand_is_not_begun_once_its_worker_notices",),
    ),
    Bug(
        "jobs under a limit with little room are fetched ahead",
        (Edit("worker/worker.py", " or time.monotonic() < self._tight_until:", ":"),),
        (f"{AHEAD}test_jobs_under_a_limit_with_little_room_are_not_fetched_ahead",),
    ),
    Bug(
        "a claim in one message goes by a limit that somebody else holds",
        (
            Edit("store/postgres/claim_lanes.sql", "f.locked_by = f.xid and", ""),
            Edit("store/postgres/claim_lanes.sql", "f.locked_by = me.xid and", ""),
        ),
        (f"{AT_ONCE}test_a_limit_that_is_not_held_is_taken_for_full",),
    ),
    Bug(
        "a claim in one message does not count what runs in the queue",
        (
            Edit(
                "store/postgres/claim_lanes.sql",
                "from oncely.lease l where l.queue = f.name",
                "from oncely.lease l where l.queue = ''",
            ),
        ),
        (f"{AT_ONCE}test_the_queues_own_limit_holds_for_all_lanes_together",),
    ),
    Bug(
        "a claim in one message forgets jobs from before the limit",
        (
            Edit(
                "store/postgres/claim_lanes.sql",
                "(f.mixed_since < f.since + interval '1 minute') is not true",
                "true",
            ),
        ),
        (f"{AT_ONCE}test_while_older_jobs_may_run_that_are_not_counted_by_group_nothing_is_taken",),
    ),
    Bug(
        "what is settled while the worker stops is settled again",
        (
            Edit(
                "worker/worker.py",
                "            self._pumped = True\n            self._lease_over.set()\n",
                "            if not self._under_way:\n                self._beside.cancel()\n",
            ),
        ),
        (f"{TURNS}test_what_the_one_beside_settles_while_the_worker_stops_is_settled_once",),
    ),
    Bug(
        "who meets a job that crashed fetches ahead all the same",
        (Edit("worker/care.py", "self._wary = AHEAD_LIMIT", "self._wary = 0"),),
        (f"{DEATHS}test_a_poison_pill_among_quick_jobs_is_found_soon",),
    ),
    Bug(
        "a suspect runs beside others",
        (
            Edit(
                "worker/care.py",
                "claimed.crashes >= CRASH_LIMIT - 1",
                "claimed.crashes > CRASH_LIMIT",
            ),
        ),
        (f"{DEATHS}test_a_poison_pill_among_quick_jobs_is_found_soon",),
    ),
    on_postgres(
        "recovery counts no crash",
        "reclaim",
        ("s.crashes + 1", "s.crashes"),
        tests=[f"{WORKER}test_after_three_crashes_in_a_row_the_job_is_a_poison_pill"],
    ),
    on_sqlite(
        "recovery counts no crash",
        "reclaim",
        ("s.crashes + 1", "s.crashes"),
        tests=[f"{WORKER}test_after_three_crashes_in_a_row_the_job_is_a_poison_pill"],
    ),
    on_postgres(
        "recovery takes leases that last",
        "reclaim",
        ("where x.expires_at <= (select clock_timestamp())", "where true"),
        tests=[f"{LEASES}test_a_lease_that_lasts_is_not_taken_back"],
    ),
    on_sqlite(
        "recovery takes leases that last",
        "reclaim",
        ("where l.expires_at <= (select now from oncely_clock)", "where true"),
        tests=[f"{LEASES}test_a_lease_that_lasts_is_not_taken_back"],
    ),
    on_postgres(
        "a worker renews all leases",
        "renew",
        ("known k)) and l.worker = :worker", "known k)) and :worker is not null"),
        ("free f)) and l.worker = :worker", "free f)) and :worker is not null"),
        tests=[f"{LEASES}test_a_worker_renews_its_own_leases_and_no_others"],
    ),
    on_sqlite(
        "a worker renews all leases",
        "renew",
        ("where worker = :worker", "where :worker is not null"),
        tests=[f"{LEASES}test_a_worker_renews_its_own_leases_and_no_others"],
    ),
    on_sqlite(
        "an epoch is given out again",
        "migrations/0001_jobs",
        ("epoch integer primary key autoincrement", "epoch integer primary key"),
        tests=[f"{DELIVERY}test_an_epoch_is_not_given_out_again_after_its_lease_is_gone"],
    ),
    on_postgres(
        "what is not due is claimed",
        "claim",
        ("and r.due_at <= (select clock_timestamp())", ""),
        tests=[f"{DELIVERY}test_what_is_not_due_is_not_claimed"],
    ),
    on_sqlite(
        "what is not due is claimed",
        "claim",
        (" and r.due_at <= c.now", ""),
        tests=[f"{DELIVERY}test_what_is_not_due_is_not_claimed"],
    ),
    Bug(
        "a claim whose answer was lost is forgotten",
        (Edit("store/deliver.py", "if limit and again:", "if limit and not limit:"),),
        (f"{WORKER}test_what_was_claimed_before_a_lost_answer_is_found",),
    ),
    Bug(
        "an end whose answer was lost is taken for refused",
        (
            Edit(
                "store/deliver.py",
                'accepted.update((yield document("settled"',
                'list((yield document("settled"',
            ),
        ),
        (f"{WORKER}test_the_same_end_sent_again_after_a_lost_answer_is_accepted",),
    ),
    Bug(
        "a worker that lost its job goes on with it",
        (Edit("worker/worker.py", f"{' ' * 16}task.cancel()\n", f"{' ' * 16}pass\n"),),
        (
            f"{WORKER}test_a_running_handler_is_cancelled_once_its_worker_notices_that_the_job_is_gone",
        ),
    ),
    Bug(
        "handlers that share a task share their context variables",
        (Edit("worker/hands.py", "if copy_context() != clean:", "if task is None:"),),
        (f"{ROWS}test_what_a_handler_puts_into_context_variables_is_not_seen_by_the_next",),
    ),
    Bug(
        "a handler that waits hands its context variables on",
        (Edit("worker/hands.py", "clean.run(self._begin_next)", "self._begin_next()"),),
        (f"{ROWS}test_what_a_handler_puts_into_context_variables_is_not_seen_by_the_next",),
    ),
    Bug(
        "a handler that gave itself up is forgotten",
        (
            Edit(
                "worker/hands.py",
                "                self._running[task] = execution\n                raise\n",
                "                raise\n",
            ),
        ),
        (f"{ROWS}test_a_handler_that_gives_itself_up_is_handed_back_and_the_others_go_on",),
    ),
    Bug(
        "a worker hands nothing back",
        (Edit("worker/hands.py", "if task.cancelled():", "if task is None:"),),
        (
            f"{WORKER}test_a_worker_whose_task_is_cancelled_hands_its_jobs_back",
            f"{STOPS}test_a_job_that_its_worker_let_go_while_the_server_was_down_is_run_again",
        ),
    ),
    Bug(
        "a failure of the store uses up an attempt",
        (Edit("flow/execute.py", "if context.is_store_error(error):", "if False:"),),
        (
            f"{STORE_FAILURES}test_a_job_is_handed_back_when_the_store_fails",
            f"{STORE_FAILURES}test_a_transaction_whose_connection_is_lost_uses_up_no_attempt",
        ),
    ),
    Bug(
        "a transaction is begun on a connection that the server closed",
        (
            Edit(
                "store/postgres/transaction.py",
                "if not isinstance(error, psycopg.OperationalError):",
                "if True:",
            ),
        ),
        (f"{STORE_FAILURES}test_idle_connections_that_the_server_closed_use_up_no_attempt",),
    ),
    Bug(
        "want of a handler forgives crashes",
        (Edit("model/outcome.py", "                crashes=standing.crashes,\n", ""),),
        (f"{DEFERS}test_want_of_a_handler_keeps_the_count_of_crashes",),
    ),
    on_postgres(
        "what a dead worker had fetched ahead counts no crash",
        "reclaim",
        ("then greatest(s.crashes, 1)", "then s.crashes"),
        tests=[f"{LEASES}{FETCHED_AHEAD}"],
    ),
    on_sqlite(
        "what a dead worker had fetched ahead counts no crash",
        "reclaim",
        ("else max(s.crashes, 1) end", "else s.crashes end"),
        tests=[f"{LEASES}{FETCHED_AHEAD}"],
    ),
    on_postgres(
        "jobs that died together are all taken for poison pills",
        "reclaim",
        ("least(s.crashes + 1, :crash_limit - 1)", "s.crashes + 1"),
        tests=[f"{LEASES}{DIED_TOGETHER}"],
    ),
    on_sqlite(
        "jobs that died together are all taken for poison pills",
        "reclaim",
        (" and l.started = 1", ""),
        tests=[f"{LEASES}{DIED_TOGETHER}"],
    ),
    Bug(
        "a worker does not wait for a store that is down",
        (Edit("worker/line.py", "if patience <= 0:", "if patience > 0:"),),
        (f"{STOPS}test_workers_live_through_immediate_stops_of_the_server",),
    ),
)


class Stale(Exception):
    """A bug cannot be planted, or its tests are not there: this file must follow the source."""


def spoiled(bug: Bug, folder: Path = ROOT) -> dict[str, str]:
    """The files that the bug changes, as they are with it."""
    texts: dict[str, str] = {}
    for edit in bug.edits:
        text = texts.get(edit.file) or (folder / "src/oncely" / edit.file).read_text()
        if edit.old not in text:
            raise Stale(f"{bug.name}: {edit.file} does not say {edit.old!r} any more")
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


@dataclass(frozen=True)
class Red:
    test: str
    timed_out: bool


class Copy:
    """The source and the tests in a folder of their own, to be spoiled."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self._database_url = database_url
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, folder / name)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def plant(self, bug: Bug) -> None:
        for file, text in spoiled(bug, self.folder).items():
            (self.folder / "src/oncely" / file).write_text(text)

    async def red(self, tests: Sequence[str], *options: str) -> list[Red]:
        """The tests that do not pass, with their parameters, of those that are named."""
        said, code = await self._pytest(*options, *tests)
        results = RESULT.findall(said)
        red = [Red(id, timed_out=False) for id, result in results if result != "PASSED"]
        red += [Red(id, timed_out=True) for id in UNDER_WAY.findall(said)]
        missing = [test for test in tests if not any(id.startswith(test) for id, _ in results)]
        if code != bool(red) or (missing and not red):
            raise Stale(f"pytest said {code}, no result of {missing}:\n{said}")
        return red

    async def _pytest(self, *arguments: str) -> tuple[str, int]:
        process = await asyncio.create_subprocess_exec(
            *(*PYTEST, *arguments),
            cwd=self.folder,
            env=self._environment(),
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        output = asyncio.create_task(process.stdout.read())
        try:
            async with asyncio.timeout(RUN_SECONDS):
                code = await process.wait()
        except TimeoutError:
            raise Stale(f"pytest did not end within {RUN_SECONDS} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has left behind
            said = await output
        return said.decode(errors="replace"), code

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "ONCELY_"))}
        path = str(self.folder / "src")
        return {**kept, "PYTHONPATH": path, "TEST_DATABASE_URL": self._database_url}


async def survived(bug: Bug, database_url: str) -> str | None:
    """Plant one bug. None if a test turned red by it; else what is wrong."""
    with TemporaryDirectory(prefix="oncely-planted-") as folder:
        copy = Copy(Path(folder), database_url)
        try:
            copy.plant(bug)
            return still_wrong(bug, await copy.red([bug.plain, *bug.tests], "--exitfirst"))
        except Stale as error:
            return str(error)


def still_wrong(bug: Bug, red: Sequence[Red]) -> str | None:
    """None if these show that the bug was noticed; else what is wrong."""
    if broken := [one.test for one in red if one.test.startswith(bug.plain)]:
        return f"nothing works any more: {', '.join(broken)}"
    if not red:
        return f"still green: {', '.join(bug.tests)}"
    if not bug.hangs and (late := [one.test for one in red if one.timed_out]):
        return f"not over within {TEST_SECONDS} s, which may be the machine: {', '.join(late)}"
    return None


async def red_without_bugs(bugs: Iterable[Bug], database_url: str, jobs: int) -> list[Red]:
    tests = sorted({PLAIN_PATH, *(test for bug in bugs for test in bug.tests)})

    async def red(some: Sequence[str]) -> list[Red]:
        with TemporaryDirectory(prefix="oncely-planted-") as folder:
            return await Copy(Path(folder), database_url).red(some)

    parts = [tests[number::jobs] for number in range(min(jobs, len(tests)))]
    return [one for found in await asyncio.gather(*map(red, parts)) for one in found]


def main() -> int:
    from tests.planted_effects import EFFECT_BUGS  # which is made of what is here

    parser = argparse.ArgumentParser(prog="python -m tests.planted", description="Plant bugs.")
    parser.add_argument("names", nargs="*", help="only the bugs whose name has this in it")
    parser.add_argument("--list", action="store_true", help="name the bugs, and plant none")
    parser.add_argument("--jobs", type=int, default=2, help="plant so many at the same time (2)")
    asked = parser.parse_args()
    known = (*BUGS, *EFFECT_BUGS)
    bugs = [b for b in known if not asked.names or any(name in b.name for name in asked.names)]
    if asked.list:
        print("\n".join(bug.name for bug in bugs))
        return 0
    use_memory()
    with Cluster() as cluster:
        return asyncio.run(_plant_all(bugs, cluster.url(), asked.jobs))


async def _plant_all(bugs: Sequence[Bug], database_url: str, jobs: int) -> int:
    print(f"the tests of {len(bugs)} bugs, without any bug", flush=True)
    if red := await red_without_bugs(bugs, database_url, jobs):
        print(f"red without any bug: {', '.join(sorted(one.test for one in red))}")
        return 1
    turns = asyncio.Semaphore(jobs)

    async def timed(bug: Bug) -> tuple[Bug, str | None, float]:
        async with turns:
            start = time.monotonic()
            wrong = await survived(bug, database_url)
            return bug, wrong, time.monotonic() - start

    missed: list[str] = []
    tasks = [asyncio.create_task(timed(bug)) for bug in bugs]
    for n, done in enumerate(asyncio.as_completed(tasks), 1):
        bug, wrong, seconds = await done
        if wrong:
            missed.append(bug.name)
        verdict = f"MISSED {bug.name}: {wrong}" if wrong else f"caught {bug.name}"
        print(f"[{n} of {len(bugs)}] {verdict} ({seconds:.0f} s)", flush=True)
    print(f"N={len(bugs)} bugs planted, {len(missed)} missed")
    for name in missed:
        print(f"  alone: {Path(sys.executable).name} -m tests.planted {shlex.quote(name)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
