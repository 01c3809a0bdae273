-- How long the oldest job that is due waits, per queue, of the first that the index has.
with recursive waiting (name) as (
    select min(r.queue) from oncely_ready r
    union all
    select (select min(r.queue) from oncely_ready r where r.queue > waiting.name)
    from waiting where waiting.name is not null
)
select w.name, max(0, (select now from oncely_clock) - (
    select min(x.due_at) from (
        select r.due_at from oncely_ready r where r.queue = w.name limit :count_limit
    ) x
))
from waiting w where w.name is not null
