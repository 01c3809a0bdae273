select s.state, (
    select count(*) from (
        select from oncely.outcome o
        where o.state = s.state and o.state <> 'completed' limit :count_limit
    ) x
)
from (values ('failed'), ('cancelled'), ('in_doubt')) s (state)
