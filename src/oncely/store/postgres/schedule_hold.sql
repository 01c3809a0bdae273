-- Those that still stand as they were read, kept so until the end of the transaction. What another
-- worker has in its hands is left to it.
select s.name
from json_to_recordset(cast(cast(:doc as text) as json)) as d (
    name text, definition text, due_us bigint, paused boolean
)
join oncely.schedule s on s.name = d.name
where s.definition = d.definition
    and (extract(epoch from s.due_at) * 1000000)::bigint = d.due_us
    and (s.paused_at is not null) = d.paused
order by s.name
for update of s skip locked
