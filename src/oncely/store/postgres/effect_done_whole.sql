-- They happened, as `effect_done` has it, where that is all there is to say: each of them was begun,
-- and none is done. Else it fails.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, name text, source text, result text
    )
),
recorded as (
    update oncely.effect e
    set state = 'done', ended_at = f.now, source = f.source, result = f.result::json
    from (
        select b.at, i.source, i.result, c.now
        from input i cross join (select clock_timestamp() as now) c
        cross join lateral (
            select k.ctid as at from oncely.effect k
            where k.job_id = i.id and k.name = i.name and k.state <> 'done' offset 0
        ) b
        order by i.id, i.name
    ) f
    where e.ctid = f.at
    returning e.job_id, e.source
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'effects', j.kind, r.source, count(*)
    from recorded r
    -- One by one, whatever was the size of the table when this was planned.
    cross join lateral (select k.kind from oncely.job k where k.id = r.job_id offset 0) j
    group by j.kind, r.source
)
select 1 / (case when count(*) = (select count(*) from input) then 1 else 0 end) from recorded
