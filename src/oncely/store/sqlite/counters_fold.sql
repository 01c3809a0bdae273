-- Move some deltas into their totals.
insert into oncely_counter (name, kind, label, total)
select x.name, x.kind, x.label, sum(x.n)
from (select t.name, t.kind, t.label, t.n from oncely_tally t order by t.rowid limit :limit) x
group by x.name, x.kind, x.label
on conflict (name, kind, label) do update set total = total + excluded.total;

delete from oncely_tally
where rowid in (select t.rowid from oncely_tally t order by t.rowid limit :limit);

select changes()
