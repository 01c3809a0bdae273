-- Move some deltas into their totals, and into the steps of time that they fall in.
insert into oncely_counter (name, kind, label, total)
select x.name, x.kind, x.label, sum(x.n)
from (select t.name, t.kind, t.label, t.n from oncely_tally t order by t.rowid limit :limit) x
group by x.name, x.kind, x.label
on conflict (name, kind, label) do update set total = total + excluded.total;

insert into oncely_traffic (seconds, step, name, kind, label, n)
with minute as materialized (
    select x.at / 60000000 * 60 as at, x.name, x.kind, x.label, sum(x.n) as n
    from (select * from oncely_tally t order by t.rowid limit :limit) x
    group by 1, 2, 3, 4
),
span (seconds) as (values (60), (900), (21600))
select s.seconds, one.at / s.seconds * s.seconds, one.name, one.kind, one.label, sum(one.n)
from minute one cross join span s
where true
group by 1, 2, 3, 4, 5
on conflict (seconds, step, name, kind, label) do update set n = n + excluded.n;

delete from oncely_tally
where rowid in (select t.rowid from oncely_tally t order by t.rowid limit :limit);

select changes()
