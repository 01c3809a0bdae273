update oncely.flow_limit f
set tokens = d.tokens, refilled_at = timestamptz 'epoch' + d.at_us * interval '1 microsecond'
from json_to_recordset(cast(:doc as json))
    as d (scope text, name text, tokens double precision, at_us bigint)
where f.scope = d.scope and f.name = d.name
