-- It happened. Evidence counts, whoever brings it and however late. What is there already stays.
if redis.call('EXISTS', entry) == 0 then
    redis.call('HSET', entry, 'verb', p.verb, 'state', 'begun', 'fingerprint', p.fingerprint,
        'arguments', p.arguments, 'begun_by', p.owner, 'holder', p.owner,
        'held_until', number(now), 'begun_at', number(now))
end
if get('state') ~= 'done' and get('fingerprint') == p.fingerprint and get('verb') == p.verb then
    redis.call('HSET', entry, 'state', 'done', 'ended_at', number(now), 'source', p.source)
    if p.result ~= cjson.null then redis.call('HSET', entry, 'result', p.result) end
    redis.call('ZREM', open, p.name)
    redis.call('ZADD', over, number(now), p.name)
end
return look()
