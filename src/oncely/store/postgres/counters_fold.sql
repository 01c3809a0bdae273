-- Move some deltas into their totals. Two workers at once take different deltas, and the totals in
-- the same order.
with gone as (
    delete from oncely.tally t where t.ctid = any (array(
        select x.ctid from oncely.tally x limit :limit for update skip locked
    ))
    returning t.name, t.kind, t.label, t.n
),
folded as (
    insert into oncely.counter as c (name, kind, label, total)
    select g.name, g.kind, g.label, sum(g.n) from gone g
    group by g.name, g.kind, g.label
    order by g.name, g.kind, g.label
    on conflict (name, kind, label) do update set total = c.total + excluded.total
)
select count(*) from gone
