select c.name, c.kind, c.label, sum(c.n)
from (
    select name, kind, label, total as n from oncely_counter
    union all
    select name, kind, label, n from oncely_tally
) c
group by c.name, c.kind, c.label
order by c.name, c.kind, c.label
