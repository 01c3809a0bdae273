-- End executions. What a lease no longer holds is not in the answer, and nothing is written for
-- it.
select json_extract(d.value, '$.id'), json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce')
from json_each(:doc) d
where (
    json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'), json_extract(d.value, '$.id')
) in (
    select l.epoch, l.nonce, m.value from oncely_lease l, json_each(l.ids) m
    where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)
);

insert into oncely_outcome (
    job_id, state, epoch, attempt, worker, started_at, ended_at, error, result
)
select
    json_extract(d.value, '$.id'), json_extract(d.value, '$.state'), h.epoch,
    json_extract(d.value, '$.attempt'), h.worker, h.claimed_at, c.now,
    json_extract(d.value, '$.error'), json_extract(d.value, '$.result')
from oncely_clock c cross join json_each(:doc) d
cross join oncely_lease h on h.epoch = json_extract(d.value, '$.epoch')
where json_extract(d.value, '$.state') is not null and (
    json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'), json_extract(d.value, '$.id')
) in (
    select l.epoch, l.nonce, m.value from oncely_lease l, json_each(l.ids) m
    where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)
);

-- The rows that were just added, which is quicker than to read the document once more.
insert into oncely_tally (name, kind, label, n)
select 'executions', j.kind, o.state, count(*)
from oncely_outcome o cross join oncely_job j on j.id = o.job_id
where o.rowid > case when changes() > 0 then last_insert_rowid() - changes() end
group by j.kind, o.state;

delete from oncely_unique_key
where (kind, key, job_id) in (
    select j.kind, j.unique_key, j.id
    from json_each(:doc) d cross join oncely_job j on j.id = json_extract(d.value, '$.id')
    where json_extract(d.value, '$.state') in ('completed', 'failed', 'cancelled')
        and j.unique_key is not null
        and (
            json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'), json_extract(d.value, '$.id')
        ) in (
            select l.epoch, l.nonce, m.value from oncely_lease l, json_each(l.ids) m
            where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)
        )
);

insert into oncely_execution (
    job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, crashes,
    defers, hand_backs, error, first_deferred_at
)
select
    json_extract(d.value, '$.id'), h.epoch, json_extract(d.value, '$.outcome'),
    json_extract(d.value, '$.attempt'), h.worker, h.claimed_at, c.now,
    c.now + json_extract(d.value, '$.delay_us'), json_extract(d.value, '$.attempts'),
    json_extract(d.value, '$.crashes'), json_extract(d.value, '$.defers'),
    json_extract(d.value, '$.hand_backs'), json_extract(d.value, '$.error'),
    -- The first defer in a row is this one, or the last delivery knows when it was.
    case when json_extract(d.value, '$.defers') > 0 then coalesce((
        select e.first_deferred_at from oncely_execution e
        where e.job_id = json_extract(d.value, '$.id') order by e.epoch desc limit 1
    ), c.now) end
from oncely_clock c cross join json_each(:doc) d
cross join oncely_lease h on h.epoch = json_extract(d.value, '$.epoch')
where json_extract(d.value, '$.state') is null and json_extract(d.value, '$.outcome') is not null
    and (
        json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'), json_extract(d.value, '$.id')
    ) in (
        select l.epoch, l.nonce, m.value from oncely_lease l, json_each(l.ids) m
        where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)
    );

insert into oncely_tally (name, kind, label, n)
select 'executions', j.kind, json_extract(d.value, '$.outcome'), count(*)
from json_each(:doc) d cross join oncely_job j on j.id = json_extract(d.value, '$.id')
where json_extract(d.value, '$.state') is null and json_extract(d.value, '$.outcome') is not null
    and (
        json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'), json_extract(d.value, '$.id')
    ) in (
        select l.epoch, l.nonce, m.value from oncely_lease l, json_each(l.ids) m
        where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)
    )
group by 2, 3;

-- Back in line: after an execution, or, with neither state nor outcome, untried and as it was.
insert into oncely_ready (queue, priority, lane, due_at, id, attempts, crashes, defers)
select j.queue, j.priority, case when j.group_key is null then '' else 'later' end, s.due_at, j.id, s.attempts, s.crashes, s.defers
from json_each(:doc) d
cross join oncely_job j on j.id = json_extract(d.value, '$.id')
cross join oncely_standing s on s.job_id = j.id
where json_extract(d.value, '$.state') is null and (
    json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'), json_extract(d.value, '$.id')
) in (
    select l.epoch, l.nonce, m.value from oncely_lease l, json_each(l.ids) m
    where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)
);

-- As many as before are begun: where one has ended, the next one began.
update oncely_lease
set (ids, started) = (
    select json_group_array(m.value), min(count(*), oncely_lease.started)
    from json_each(oncely_lease.ids) m
    where (oncely_lease.epoch, oncely_lease.nonce, m.value) not in (
        select json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'),
            json_extract(d.value, '$.id')
        from json_each(:doc) d
    )
)
where epoch in (select json_extract(d.value, '$.epoch') from json_each(:doc) d);

delete from oncely_lease
where epoch in (select json_extract(d.value, '$.epoch') from json_each(:doc) d)
    and json_array_length(ids) = 0
