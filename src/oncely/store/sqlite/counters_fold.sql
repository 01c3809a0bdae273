-- Move some deltas into their totals, and into the steps of time that they fall in. Kinds that are new
-- are counted by name while there is room, then as `other`.
insert into oncely_counted_kind (kind)
select x.kind
from (select t.kind, t.rowid as place from oncely_tally t order by t.rowid limit :limit) x
where not exists (select 1 from oncely_counted_kind k where k.kind = x.kind)
group by x.kind order by min(x.place)
limit max(0, :kinds_limit - (select count(*) from oncely_counted_kind));

insert into oncely_counter (name, kind, label, total)
select x.name, coalesce(k.kind, :other), x.label, sum(x.n)
from (select t.name, t.kind, t.label, t.n from oncely_tally t order by t.rowid limit :limit) x
left join oncely_counted_kind k on k.kind = x.kind
where true
group by 1, 2, 3
on conflict (name, kind, label) do update set total = total + excluded.total;

insert into oncely_traffic (seconds, step, name, kind, label, n)
with minute as materialized (
    select x.at / 60000000 * 60 as at, x.name, coalesce(k.kind, :other) as kind, x.label,
        sum(x.n) as n
    from (select * from oncely_tally t order by t.rowid limit :limit) x
    left join oncely_counted_kind k on k.kind = x.kind
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
