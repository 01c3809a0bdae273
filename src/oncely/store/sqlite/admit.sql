-- Take in a batch of jobs: first the keys, then the jobs whose keys were won. Of two jobs in the
-- batch with one key the first wins. In a caller's transaction `store` is the id of the store: on
-- another one the answer ends with a row of nulls, and the caller's savepoint undoes the rest.
insert into oncely_idempotency_key (queue, key, job_id, fingerprint, created_at, lent)
select
    json_extract(d.value, '$.queue'), json_extract(d.value, '$.idempotency_key'),
    coalesce(u.job_id, json_extract(d.value, '$.id')), json_extract(d.value, '$.fingerprint'),
    (select now from oncely_clock), u.job_id is not null
from json_each(:doc) d
left join oncely_unique_key u
    on u.kind = json_extract(d.value, '$.kind') and u.key = json_extract(d.value, '$.unique_key')
where json_extract(d.value, '$.idempotency_key') is not null
order by d.key
on conflict do nothing;

insert into oncely_unique_key (kind, key, job_id)
select
    json_extract(d.value, '$.kind'), json_extract(d.value, '$.unique_key'),
    json_extract(d.value, '$.id')
from json_each(:doc) d
where json_extract(d.value, '$.unique_key') is not null and (
    json_extract(d.value, '$.idempotency_key') is null
    or exists (
        select 1 from oncely_idempotency_key k
        where k.queue = json_extract(d.value, '$.queue')
            and k.key = json_extract(d.value, '$.idempotency_key')
            and k.job_id = json_extract(d.value, '$.id')
    )
)
order by d.key
on conflict do nothing;

insert into oncely_job (
    id, kind, queue, payload, priority, created_at, due_at, idempotency_key, unique_key,
    group_key, max_attempts, timeout_seconds, tags, traceparent
)
select
    json_extract(d.value, '$.id'), json_extract(d.value, '$.kind'),
    json_extract(d.value, '$.queue'), json_extract(d.value, '$.payload'),
    json_extract(d.value, '$.priority'), c.now,
    coalesce(json_extract(d.value, '$.run_at_us'), c.now + json_extract(d.value, '$.delay_us')),
    json_extract(d.value, '$.idempotency_key'), json_extract(d.value, '$.unique_key'),
    json_extract(d.value, '$.group_key'), json_extract(d.value, '$.max_attempts'),
    json_extract(d.value, '$.timeout_seconds'), json_extract(d.value, '$.tags'),
    json_extract(d.value, '$.traceparent')
from json_each(:doc) d cross join oncely_clock c
where case
    when json_extract(d.value, '$.unique_key') is not null then exists (
        select 1 from oncely_unique_key u
        where u.kind = json_extract(d.value, '$.kind')
            and u.key = json_extract(d.value, '$.unique_key')
            and u.job_id = json_extract(d.value, '$.id')
    )
    when json_extract(d.value, '$.idempotency_key') is not null then exists (
        select 1 from oncely_idempotency_key k
        where k.queue = json_extract(d.value, '$.queue')
            and k.key = json_extract(d.value, '$.idempotency_key')
            and k.job_id = json_extract(d.value, '$.id')
    )
    else true
end;

-- The rows that were just added, which is quicker than to read the document once more.
insert into oncely_tally (name, kind, label, n)
select 'enqueued', j.kind, '', count(*) from oncely_job j
where j.rowid > case when changes() > 0 then last_insert_rowid() - changes() end
group by j.kind;

insert into oncely_ready (queue, priority, lane, due_at, id, attempts)
select j.queue, j.priority,
    case when j.group_key is null then '' when j.due_at > j.created_at then 'later'
        else 'g:' || j.group_key end,
    j.due_at, j.id, 0
from json_each(:doc) d join oncely_job j on j.id = json_extract(d.value, '$.id');

select j.id, j.due_at > j.created_at
from json_each(:doc) d join oncely_job j on j.id = json_extract(d.value, '$.id')
union all
select null, null
where :store is not null and not exists (select 1 from oncely_store where id = :store)
