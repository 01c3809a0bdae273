"""Planted bugs of the effect layer; see tests/planted.py."""

from tests.planted import Bug, Edit, on_postgres, on_sqlite

EFFECTS = "tests/engine/test_effects.py::"
TRANSACTIONS = "tests/engine/test_transactions.py::"
COMPLETE = "tests/engine/test_complete.py::"
NOT_DONE = "tests/engine/test_not_done.py::"
ARGUMENTS = "tests/engine/test_effect_arguments.py::"
HTTP_ERRORS = "tests/engine/test_http_errors.py::"
RENAMED = "tests/engine/test_renamed_effects.py::"
CRASHES = "tests/crash/test_effect_crashes.py::"
ZOMBIES = "tests/crash/test_zombies.py::"
HOLDERS = "tests/crash/test_ledger_holders.py::"
LOST = "tests/crash/test_effect_lost_answers.py::"
BLOCKS = "tests/engine/test_ledger_transaction.py::"
REQUESTS = "tests/engine/test_requests.py::"
ONCE = f"{CRASHES}test_ended_at_every_boundary_it_happens_exactly_once"
AT_MOST_ONCE = f"{CRASHES}test_ended_at_every_boundary_a_fence_happens_at_most_once_and_is_held"
SQLITE_HELD = """exists (
    select 1 from oncely_lease l cross join json_each(l.ids) m
    where l.epoch = :epoch and l.nonce = :nonce and m.value = :id
)"""
POSTGRES_HELD = """select l.epoch from oncely.lease l
    where l.epoch = :epoch and l.nonce = :nonce and cast(:id as uuid) = any (l.ids)
    for key share"""
ANYBODY = "select cast(:epoch as bigint) as epoch where :nonce is not null"

EFFECT_BUGS: tuple[Bug, ...] = (
    Bug(
        "what a partial binds is not part of the fingerprint",
        (
            Edit(
                "model/effect.py", "while isinstance(function, functools.partial):", "while False:"
            ),
        ),
        (f"{ARGUMENTS}test_an_amount_that_changed_between_attempts_is_a_mismatch",),
    ),
    Bug(
        "a verb that is not awaited goes unseen",
        (
            Edit(
                "flow/execute.py",
                " if context.issued is None else fail_unawaited(ending, context.issued)",
                "",
            ),
        ),
        ("tests/engine/test_unawaited_verbs.py::test_a_step_without_await_fails_the_attempt",),
    ),
    Bug(
        "a refusal after a redirect clears the intent",
        (
            Edit(
                "model/http_errors.py",
                "return _status(error) in _REFUSED and not _has_earlier_requests(error)",
                "return _status(error) in _REFUSED",
            ),
        ),
        (f"{HTTP_ERRORS}test_a_refusal_after_a_redirect_proves_nothing",),
    ),
    Bug(
        "the old name of an effect is not looked for",
        (Edit("store/effects.py", "if any(effect.was for effect in intents):", "if False:"),),
        (f"{RENAMED}test_an_effect_on_record_under_an_old_name_is_found",),
    ),
    Bug(
        "a renamed effect goes unseen",
        (Edit("store/deliver.py", "    if renamed:\n", "    if False:\n"),),
        (f"{RENAMED}test_a_renamed_effect_runs_again_but_not_unseen",),
    ),
    Bug(
        "the outcome is recorded before the effect",
        (
            Edit(
                "flow/protocol.py",
                "            value = yield Call(",
                "            yield self.evidence(*kept(None))\n            value = yield Call(",
            ),
        ),
        (f"{ONCE}[sqlite-step_def]",),
    ),
    Bug(
        "a time-out deletes the intent",
        (
            Edit(
                "flow/protocol.py",
                "return self.first and (",
                "return self.first and (isinstance(error, Exception) or ",
            ),
        ),
        (f"{EFFECTS}test_a_fence_whose_end_is_not_known_holds_the_job",),
    ),
    Bug(
        "skipped is taken for done",
        (Edit("flow/protocol.py", 'case "assume":', 'case "assume" | "hold":'),),
        (f"{AT_MOST_ONCE}[sqlite-fence_def]",),
    ),
    Bug(
        "a refused completion is committed, in ctx.transaction()",
        (
            Edit(
                "flow/complete.py",
                "if (yield from deliver.settle([settlement])):",
                "if (yield from deliver.settle([settlement])) is None:",
            ),
        ),
        (f"{TRANSACTIONS}test_who_lost_the_lease_writes_nothing",),
    ),
    Bug(
        "a refused completion is committed, in one message with the commit",
        (Edit("store/postgres/settle_last.sql", "select 1 / count(", "select count("),),
        (f"{TRANSACTIONS}test_who_lost_the_lease_writes_nothing",),
    ),
    Bug(
        "a refused completion is committed, in the caller's transaction",
        (
            Edit(
                "flow/complete.py",
                "if (yield from deliver.settle([settlement])):",
                "if (yield from deliver.settle([settlement])) is None:",
            ),
        ),
        (f"{COMPLETE}test_who_lost_the_lease_is_refused",),
    ),
    Bug(
        "the same name with other arguments is accepted",
        (Edit("flow/protocol.py", "not self.has_arguments_of(entry) or ", ""),),
        (f"{EFFECTS}test_other_arguments_under_the_same_name_are_refused",),
    ),
    Bug(
        "an effect is begun without the fence, on postgres",
        (
            Edit(
                "store/postgres/effect_begin.sql",
                "    join member m on m.id = i.id and m.epoch = i.epoch and m.nonce = i.nonce\n",
                "",
            ),
        ),
        (f"{EFFECTS}test_a_late_execution_may_not_begin_an_effect",),
    ),
    Bug(
        "an effect is begun without the fence, on sqlite",
        (
            Edit(
                "store/sqlite/effect_begin.sql",
                ") as held,",
                ") or true as held,",
            ),
        ),
        (f"{EFFECTS}test_a_late_execution_may_not_begin_an_effect",),
    ),
    on_postgres(
        "an effect is retaken without the fence",
        "effect_retake",
        (POSTGRES_HELD, ANYBODY),
        tests=[f"{ZOMBIES}test_who_loses_the_lease_while_asking_does_nothing"],
    ),
    on_sqlite(
        "an effect is retaken without the fence",
        "effect_retake",
        (SQLITE_HELD, "(:nonce is not null)"),
        tests=[f"{ZOMBIES}test_who_loses_the_lease_while_asking_does_nothing"],
    ),
    Bug(
        "a refusal clears what an earlier execution began",
        (
            Edit(
                "flow/protocol.py",
                "return self.first and (",
                "return (",
            ),
        ),
        (f"{NOT_DONE}test_only_the_first_time_proves_that_nothing_happened",),
    ),
    Bug(
        "a reset is taken for a refusal",
        (
            Edit(
                "model/proof.py",
                "error.errno == errno.ECONNREFUSED",
                "error.errno in (errno.ECONNREFUSED, errno.ECONNRESET)",
            ),
        ),
        (f"{NOT_DONE}test_a_time_out_or_a_reset_proves_nothing",),
    ),
    Bug(
        "what a late execution knows is refused",
        (
            Edit(
                "store/effects.py",
                "    records = [one.record() for one in known]\n",
                "    records = [one.record() for one in known]\n"
                '    for row in (yield document("effect_look", records)):\n'
                "        if not row[4]:\n"
                "            raise LeaseLost(row[0], row[2])\n",
            ),
        ),
        (f"{EFFECTS}test_evidence_of_a_late_execution_counts",),
    ),
    Bug(
        "a held job does not go on when the evidence comes",
        (
            Edit(
                "store/effects.py",
                "            yield from go_on(job_id)\n",
                "            pass\n",
            ),
        ),
        (f"{ZOMBIES}test_evidence_and_hold_in_either_order",),
    ),
    Bug(
        "a hold does not see the evidence that came before it",
        (
            Edit(
                "store/effects.py",
                "doubted, id=job_id)\n    yield from go_on(job_id)\n",
                "doubted, id=job_id)\n",
            ),
        ),
        (f"{ZOMBIES}test_evidence_and_hold_in_either_order",),
    ),
    Bug(
        "a handler swallows the doubt",
        (
            Edit(
                "flow/execute.py",
                "    if not begun:\n",
                "    if not begun or isinstance(ending, Returned):\n",
            ),
        ),
        (f"{EFFECTS}test_doubt_cannot_be_swallowed",),
    ),
    Bug(
        "a transaction that PostgreSQL has aborted is committed",
        (Edit("store/postgres/transaction.py", "_refuse_aborted(connection)\n", "pass\n"),),
        (f"{TRANSACTIONS}test_a_caught_error_of_a_statement_does_not_lose_the_write",),
    ),
    Bug(
        "the handler ends the transaction of its job",
        (Edit("store/sqlite/transaction.py", "self.set_authorizer(_refuse_transactions)", "pass"),),
        (f"{TRANSACTIONS}test_the_handler_cannot_end_the_transaction",),
    ),
    Bug(
        "a lost answer to the commit is taken for a failure",
        (
            Edit("flow/complete.py", "if not self._arrived():", "if self.begun:"),
            Edit(
                "flow/complete.py",
                "if not await aside(self._store_threads, self._arrived):",
                "if self.begun:",
            ),
        ),
        (f"{TRANSACTIONS}test_a_lost_answer_to_the_commit_is_settled_by_reading",),
    ),
    Bug(
        "what is known does not wait for the store",
        (Edit("flow/drive.py", "_WAITS_SECONDS if wanted.patient else ()", "()"),),
        (f"{ZOMBIES}test_evidence_waits_for_a_store_that_is_gone_for_a_moment",),
    ),
    Bug(
        "the end of a thread that nobody waits for is forgotten",
        (Edit("flow/drive.py", "evidence = call.told and call.told(end)", "evidence = None"),),
        (f"{ZOMBIES}test_a_late_proof_that_nothing_happened_counts_too[sqlite]",),
        hangs=True,
    ),
    Bug(
        "a fence whose end is not known is done again",
        (Edit("model/effect.py", 'return "hold"\n', 'return "again"\n'),),
        (f"{HOLDERS}test_who_is_killed_lets_the_next_go_on_by_the_rules[sqlite-hold]",),
    ),
    Bug(
        "an entry of the ledger is not renewed",
        (
            Edit(
                "worker/hold.py",
                'self._books.run(lambda _, i=intent: plans.renew(i, self._lease_us), "write")',
                "pass",
            ),
        ),
        (f"{HOLDERS}test_who_lives_keeps_it_past_its_lease[sqlite]",),
    ),
    Bug(
        "an entry of the ledger is taken from a caller that lives",
        (
            Edit(
                "store/ledger/postgres/begin.sql",
                "and state <> 'done' and held_until <= clock_timestamp()",
                "and state <> 'done'",
            ),
        ),
        (f"{HOLDERS}test_who_lives_keeps_it_past_its_lease[postgres]",),
    ),
    Bug(
        "an intent that is sent again is taken for one of an earlier execution",
        (Edit("store/effects.py", "mine = again and ", "mine = False and "),),
        (f"{LOST}test_an_effect_of_a_job_is_done_once",),
    ),
    Bug(
        "a refusal after a redirect is taken for proof",
        (Edit("model/proof.py", " and not made_earlier_requests(error)", ""),),
        (
            f"{NOT_DONE}test_a_redirect_to_a_closed_port_proves_nothing",
            f"{NOT_DONE}test_a_refusal_after_a_try_that_may_have_arrived_proves_nothing",
        ),
    ),
    Bug(
        "an entry stays when its block fails",
        (Edit("flow/block.py", "yield Ask(lambda _: plans.undo())\n", "yield Rest(0)\n"),),
        (f"{BLOCKS}test_an_exception_undoes_the_block_and_nothing_else",),
    ),
    Bug(
        "a person answers for a request that still runs",
        (
            Edit(
                "store/sqlite/request_happened.sql",
                "    and held_until <= (select now from oncely_clock)\n",
                "",
            ),
        ),
        (f"{REQUESTS}test_only_what_is_in_doubt_can_be_answered_for[sqlite]",),
    ),
    Bug(
        "a late server overwrites what a person answered",
        (Edit("store/postgres/request_happened.sql", "owner = -1, ", ""),),
        (f"{REQUESTS}test_a_person_says_that_it_happened_and_what_its_client_is_told",),
    ),
)
