-- A person's answer: it happened, with this result; or it did not, and the intent is gone.
-- Looked at again: a call may have taken the entry since it was asked about.
if redis.call('EXISTS', entry) == 0 or get('state') == 'done' then return '' end
if tonumber(get('held_until')) > now then return '' end
redis.call('RPUSH', answers, cjson.encode({name = p.name, at_us = number(now),
    happened = p.happened, by = p.by_whom, note = p.note}))
redis.call('ZREM', open, p.name)
if p.happened then
    redis.call('HSET', entry, 'state', 'done', 'source', 'resolved', 'ended_at', number(now))
    if p.result ~= cjson.null then redis.call('HSET', entry, 'result', p.result) end
    redis.call('ZADD', over, number(now), p.name)
else
    redis.call('DEL', entry)
end
return ''
