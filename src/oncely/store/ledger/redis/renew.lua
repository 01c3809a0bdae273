if get('holder') == p.owner and get('state') ~= 'done' then
    redis.call('HSET', entry, 'held_until', number(now + p.lease_us))
    redis.call('ZADD', open, number(now + p.lease_us), p.name)
end
return ''
