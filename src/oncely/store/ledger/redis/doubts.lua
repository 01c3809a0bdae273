-- Those whose end nobody knows and nobody is finding out, the longest first.
local rows = {}
for _, name in ipairs(redis.call('ZRANGE', open, '-inf', number(now), 'BYSCORE')) do
    if #rows >= p.limit then break end
    local at = prefix .. name
    local verb = redis.call('HGET', at, 'verb')
    if redis.call('HGET', at, 'state') == 'in_doubt' or verb == 'fence' then
        table.insert(rows, {name, verb, (now - tonumber(redis.call('HGET', at, 'begun_at'))) / 1e6,
            redis.call('HGET', at, 'arguments')})
    end
end
if #rows == 0 then return '' end
return cjson.encode(rows)
