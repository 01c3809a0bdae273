-- Each of these jobs is still held by who says so. Else it fails.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, epoch bigint, nonce bigint
    )
),
member as materialized (
    select l.epoch, l.nonce, unnest(l.ids) as id from oncely.lease l
    where l.epoch in (select i.epoch from input i)
)
select 1 / (case when count(m.id) = count(*) then 1 else 0 end)
from input i left join member m on m.id = i.id and m.epoch = i.epoch and m.nonce = i.nonce
