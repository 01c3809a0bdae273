-- In one statement: a fold that commits meanwhile is seen whole or not at all. `named` are the kinds
-- that are counted by name, and those that the next fold makes so.
with named as materialized (
    select k.kind from oncely.counted_kind k
    union all
    (
        select t.kind from oncely.tally t
        where not exists (select from oncely.counted_kind k where k.kind = t.kind)
        group by t.kind order by min(t.at), t.kind
        limit greatest(0, cast(:kinds_limit as bigint) - (select count(*) from oncely.counted_kind))
    )
)
select c.name, coalesce(k.kind, cast(:other as text)), c.label, sum(c.n)::bigint
from (
    select name, kind, label, total as n from oncely.counter
    union all
    select name, kind, label, n from oncely.tally
) c
left join named k on k.kind = c.kind
group by 1, 2, 3
order by 1, 2, 3
