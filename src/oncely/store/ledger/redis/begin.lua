-- Write down the intent; or take over one whose holder is gone, if it is the same.
if redis.call('EXISTS', entry) == 0 then
    redis.call('HSET', entry, 'verb', p.verb, 'state', 'begun', 'fingerprint', p.fingerprint,
        'arguments', p.arguments, 'begun_by', p.owner, 'holder', p.owner,
        'held_until', number(now + p.lease_us), 'begun_at', number(now))
    redis.call('ZADD', open, number(now + p.lease_us), p.name)
elseif get('state') ~= 'done' and tonumber(get('held_until')) <= now
    and get('fingerprint') == p.fingerprint and get('verb') == p.verb then
    redis.call('HSET', entry, 'holder', p.owner, 'held_until', number(now + p.lease_us))
    redis.call('ZADD', open, number(now + p.lease_us), p.name)
end
return look()
