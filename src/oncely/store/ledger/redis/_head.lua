-- Before every script: the entry, the indexes, the parameters, and the server's clock.
local entry, open, over, answers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, p = ARGV[1], cjson.decode(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function number(n) return string.format('%.0f', n) end
local function get(field) return redis.call('HGET', entry, field) end
local function look()
    if redis.call('EXISTS', entry) == 0 then return '' end
    return cjson.encode({{get('begun_by') == p.owner, get('holder') == p.owner,
        tonumber(get('held_until')) > now, get('state'), get('verb'), get('fingerprint'),
        (now - tonumber(get('begun_at'))) / 1000000, get('source') or cjson.null,
        get('result') or cjson.null}})
end
