insert into oncely.tally (name, kind, label, n)
select i.name, i.kind, i.label, i.n
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    name text, kind text, label text, n bigint
)
