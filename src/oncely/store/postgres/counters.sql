-- In one statement: a fold that commits meanwhile is seen whole or not at all.
select c.name, c.kind, c.label, sum(c.n)::bigint
from (
    select name, kind, label, total as n from oncely.counter
    union all
    select name, kind, label, n from oncely.tally
) c
group by c.name, c.kind, c.label
order by c.name, c.kind, c.label
