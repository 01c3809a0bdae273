-- Move some deltas into their totals, and into the steps of time that they fall in. Two workers at
-- once take different deltas, and the totals in the same order.
with gone as (
    delete from oncely.tally t where t.ctid = any (array(
        select x.ctid from oncely.tally x limit :limit for update skip locked
    ))
    returning t.name, t.kind, t.label, t.n, t.at
),
minute as materialized (
    select floor(extract(epoch from g.at) / 60)::bigint * 60 as at, g.name, g.kind, g.label,
        sum(g.n) as n
    from gone g group by 1, 2, 3, 4
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
