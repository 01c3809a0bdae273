-- Move some deltas into their totals, and into the steps of time that they fall in. Kinds that are new
-- are counted by name while there is room, then as `other`. One transaction at a time, the next with a
-- snapshot of its own: there is never a kind too many.
select pg_advisory_xact_lock(hashtextextended('oncely.counted_kind', 0));

with gone as (
    delete from oncely.tally t where t.ctid = any (array(
        select x.ctid from oncely.tally x limit :limit for update skip locked
    ))
    returning t.name, t.kind, t.label, t.n, t.at
),
added as (
    insert into oncely.counted_kind (kind)
    select g.kind from gone g
    where not exists (select from oncely.counted_kind k where k.kind = g.kind)
    group by g.kind order by min(g.at), g.kind
    limit greatest(0, cast(:kinds_limit as bigint) - (select count(*) from oncely.counted_kind))
    returning kind
),
named as (
    select k.kind from oncely.counted_kind k
    union all
    select a.kind from added a
),
minute as materialized (
    select floor(extract(epoch from g.at) / 60)::bigint * 60 as at, g.name,
        coalesce(k.kind, cast(:other as text)) as kind, g.label, sum(g.n) as n
    from gone g left join named k on k.kind = g.kind
    group by 1, 2, 3, 4
),
folded as (
    insert into oncely.counter as c (name, kind, label, total)
    select m.name, m.kind, m.label, sum(m.n) from minute m
    group by m.name, m.kind, m.label
    order by m.name, m.kind, m.label
    on conflict (name, kind, label) do update set total = c.total + excluded.total
),
filed as (
    insert into oncely.traffic as f (seconds, step, name, kind, label, n)
    select s.seconds, m.at / s.seconds * s.seconds, m.name, m.kind, m.label, sum(m.n)
    from minute m cross join (values (60), (900), (21600)) s (seconds)
    group by 1, 2, 3, 4, 5
    order by 1, 2, 3, 4, 5
    on conflict (seconds, step, name, kind, label) do update set n = f.n + excluded.n
)
select count(*) from gone
