-- All that happened to a job. A row has the name of what it tells; then when that was, when its
-- delivery began, when the job is due next or how long the lease lasts; then who. An effect
-- has its end, its verb, how that is known and its name.
select 'now', c.now, null, s.due_at, s.state, null, s.attempts, null, null, null, null
from oncely_clock c cross join oncely_standing s where s.job_id = :id
union all
select 'lease', l.claimed_at, null, l.expires_at, case when m.key < l.started then 'begun' end,
    l.epoch, null, l.worker, null, null, null
from oncely_lease l cross join json_each(l.ids) m where m.value = :id
union all
select 'delivery', e.ended_at, e.started_at, e.due_at, e.outcome, e.epoch, e.attempt, e.worker,
    null, null, e.error
from oncely_execution e where e.job_id = :id
union all
select 'rest', o.ended_at, o.started_at, null, o.state, o.epoch, o.attempt, o.worker, null, null,
    o.error
from oncely_outcome o where o.job_id = :id
union all
select 'repeat', r.at, null, null, r.outcome, r.epoch, r.attempt, r.worker, r.boundary, r.key, null
from oncely_repeat r where r.job_id = :id
union all
select 'effect', e.begun_at, null, e.ended_at, e.state, e.epoch, null, e.verb, e.source, e.name, null
from oncely_effect e where e.job_id = :id
union all
select 'renamed', e.renamed_at, null, null, null, e.renamed_epoch, null, null, null, e.name,
    e.renamed_to
from oncely_effect e where e.job_id = :id and e.renamed_at is not null
union all
select 'resolution', r.at, null, null,
    case when r.forgotten then 'forgotten' when r.happened then 'happened' else 'did_not_happen' end,
    null, null, r.by_whom, null, r.name, json_quote(r.note)
from oncely_resolution r where r.job_id = :id
union all
select 'drill', d.at, null, null, d.outcome, d.epoch, null, d.worker, null, null, d.found
from oncely_drill d where d.job_id = :id
