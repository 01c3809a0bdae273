-- A job that has its lease for itself is completed. The last statement of a transaction, sent with
-- its commit: what is refused must be an error, so that the commit is not carried out.
with gone as (
    delete from oncely.lease l
    where l.epoch = cast(:epoch as bigint) and l.nonce = cast(:nonce as bigint)
        and l.ids = array[cast(:id as uuid)]
    returning l.epoch, l.ids, l.worker, l.claimed_at
),
ended as (
    insert into oncely.outcome (
        job_id, state, epoch, attempt, worker, started_at, ended_at, result
    )
    select g.ids[1], 'completed', g.epoch, cast(:attempt as smallint), g.worker, g.claimed_at,
        clock_timestamp(), 'null'
    from gone g
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'executions', cast(:kind as text), 'completed', 1 from gone
)
select 1 / count(oncely.tell_waiters(g.ids)) from gone g
