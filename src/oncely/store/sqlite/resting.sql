select s.column1, (
    select count(*) from (
        select 1 from oncely_outcome o
        where o.state = s.column1 and o.state <> 'completed' limit :count_limit
    ) x
)
from (values ('failed'), ('cancelled'), ('in_doubt')) s
