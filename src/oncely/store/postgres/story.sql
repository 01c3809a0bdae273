-- All that happened to a job, in one statement and so as of one moment. A row has the name of what
-- it tells; then when that was, when its delivery began, when the job is due next or how long the
-- lease lasts; then who. An effect has its end, its verb, how that is known and its name.
select told.source,
    (extract(epoch from told.at) * 1000000)::bigint,
    (extract(epoch from told.began_at) * 1000000)::bigint,
    (extract(epoch from told.until) * 1000000)::bigint,
    told.outcome, told.epoch, told.attempt, told.worker, told.boundary, told.key, told.error::text
from (
    select 'now' as source, clock_timestamp() as at, null::timestamptz as began_at,
        s.due_at as until, s.state as outcome, null::bigint as epoch, s.attempts as attempt,
        null::text as worker, null::text as boundary, null::text as key, null::json as error
    from oncely.standing s where s.job_id = cast(:id as uuid)
    union all
    select 'lease', l.claimed_at, null, l.expires_at,
        case when array_position(l.ids, cast(:id as uuid)) <= l.started then 'begun' end, l.epoch,
        null, l.worker, null, null, null
    from oncely.lease l where cast(:id as uuid) = any (l.ids)
    union all
    select 'delivery', e.ended_at, e.started_at, e.due_at, e.outcome, e.epoch, e.attempt, e.worker,
        null, null, e.error
    from oncely.execution e where e.job_id = cast(:id as uuid)
    union all
    select 'rest', o.ended_at, o.started_at, null, o.state, o.epoch, o.attempt, o.worker,
        null, null, o.error
    from oncely.outcome o where o.job_id = cast(:id as uuid)
    union all
    select 'repeat', r.at, null, null, r.outcome, r.epoch, r.attempt, r.worker, r.boundary, r.key,
        null
    from oncely.repeat r where r.job_id = cast(:id as uuid)
    union all
    select 'effect', e.begun_at, null, e.ended_at, e.state, e.epoch, null, e.verb, e.source, e.name,
        null
    from oncely.effect e where e.job_id = cast(:id as uuid)
    union all
    select 'renamed', e.renamed_at, null, null, null, e.renamed_epoch, null, null, null, e.name,
        e.renamed_to
    from oncely.effect e where e.job_id = cast(:id as uuid) and e.renamed_at is not null
    union all
    select 'resolution', r.at, null, null,
        case when r.forgotten then 'forgotten' when r.happened then 'happened'
            else 'did_not_happen' end,
        null, null, r.by_whom, null, r.name, to_json(r.note)
    from oncely.resolution r where r.job_id = cast(:id as uuid)
    union all
    select 'drill', d.at, null, null, d.outcome, d.epoch, null, d.worker, null, null, d.found
    from oncely.drill d where d.job_id = cast(:id as uuid)
) told
