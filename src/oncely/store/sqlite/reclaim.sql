-- Take back what dead workers held. A job that was begun counts a crash, and after too many in a
-- row it fails as a poison pill; the last of them counts only if no other job of its lease was begun.
-- One that was fetched ahead may have begun without a word to the store: it has one crash from then
-- on, but no more than that. All keep their place in the line: who claims next meets first what died
-- first, and is careful with all that has a crash. The dead leases are marked first, so that all
-- statements speak of the same ones. They are few, which SQLite must be told: else, once somebody has
-- run ANALYZE, it reads all jobs into a Bloom filter.
update oncely_lease set expires_at = 0
where epoch in (
    select l.epoch from oncely_lease l where l.expires_at <= (select now from oncely_clock)
    order by l.epoch limit :limit
);

-- Those of which the ledger knows that they were begun come before the others, and count as begun.
-- From here on `started` is the number of begun jobs that have not ended.
update oncely_lease set (ids, started) = (
    select json_group_array(x.id), coalesce(sum(x.tried), 0)
    from (
        select m.value as id, m.key < oncely_lease.started or exists (
            select 1 from oncely_effect e
            where e.job_id = m.value and e.epoch = oncely_lease.epoch
        ) as tried
        from json_each(oncely_lease.ids) m
        order by 2 desc, m.key
    ) x
)
where expires_at = 0;

select j.id, l.epoch, j.kind, j.queue, l.worker,
    case when m.key >= l.started then 'untried' when s.crashes + 1 >= :crash_limit and l.started = 1
        then 'poisoned' else 'crashed' end
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_job j on j.id = m.value
cross join oncely_standing s on s.job_id = m.value
where l.expires_at = 0;

insert into oncely_tally (name, kind, label, n)
select 'executions', j.kind,
    case when s.crashes + 1 >= :crash_limit and l.started = 1 then 'failed' else 'crashed' end,
    count(*)
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_job j on j.id = m.value
cross join oncely_standing s on s.job_id = m.value
where l.expires_at = 0 and m.key < l.started
group by 2, 3;

insert into oncely_outcome (job_id, state, epoch, attempt, worker, started_at, ended_at, error)
select m.value, 'failed', l.epoch, s.attempts + 1, l.worker, l.claimed_at,
    (select now from oncely_clock), :poison
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_standing s on s.job_id = m.value
where likelihood(l.expires_at = 0, 0.000001) and m.key < l.started
    and s.crashes + 1 >= :crash_limit and l.started = 1;

delete from oncely_unique_key
where (kind, key, job_id) in (
    select j.kind, j.unique_key, j.id
    from oncely_lease l cross join json_each(l.ids) m
    cross join oncely_job j on j.id = m.value
    cross join oncely_outcome o on o.job_id = j.id
    where likelihood(l.expires_at = 0, 0.000001) and j.unique_key is not null
);

insert into oncely_execution (
    job_id, epoch, nonce, outcome, attempt, worker, started_at, ended_at, due_at, attempts,
    crashes, defers, first_deferred_at, hand_backs, error
)
select m.value, l.epoch, l.nonce, 'crashed', s.attempts + 1, l.worker, l.claimed_at, c.now, s.due_at,
    s.attempts,
    case when m.key < l.started then min(s.crashes + 1, :crash_limit - 1)
        else max(s.crashes, 1) end,
    s.defers, s.first_deferred_at, s.hand_backs,
    case when m.key < l.started then :crash else :held end
from oncely_clock c cross join oncely_lease l cross join json_each(l.ids) m
cross join oncely_standing s on s.job_id = m.value
where l.expires_at = 0
    and not exists (select 1 from oncely_outcome o where o.job_id = m.value);

insert into oncely_ready (queue, priority, lane, due_at, id, attempts, crashes, defers)
select j.queue, j.priority, case when j.group_key is null then '' else 'later' end, s.due_at, j.id, s.attempts, s.crashes, s.defers
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_job j on j.id = m.value
cross join oncely_standing s on s.job_id = m.value
where l.expires_at = 0 and not exists (select 1 from oncely_outcome o where o.job_id = m.value);

delete from oncely_lease where expires_at = 0
