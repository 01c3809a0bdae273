-- `named` are the kinds that are counted by name, and those that the next fold makes so.
with named as materialized (
    select kind from oncely_counted_kind
    union all
    select x.kind from (
        select t.kind from oncely_tally t
        where not exists (select 1 from oncely_counted_kind k where k.kind = t.kind)
        group by t.kind order by min(t.rowid)
        limit max(0, :kinds_limit - (select count(*) from oncely_counted_kind))
    ) x
)
select c.name, coalesce(k.kind, :other), c.label, sum(c.n)
from (
    select name, kind, label, total as n from oncely_counter
    union all
    select name, kind, label, n from oncely_tally
) c
left join named k on k.kind = c.kind
group by 1, 2, 3
order by 1, 2, 3
