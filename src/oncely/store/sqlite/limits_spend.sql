update oncely_flow_limit
set (tokens, refilled_at) = (
    select json_extract(d.value, '$.tokens'), json_extract(d.value, '$.at_us')
    from json_each(:doc) d
    where json_extract(d.value, '$.scope') = scope and json_extract(d.value, '$.name') = name
)
where (scope, name) in (
    select json_extract(d.value, '$.scope'), json_extract(d.value, '$.name') from json_each(:doc) d
)
