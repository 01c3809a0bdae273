-- The holder lets the entry go without knowing its end.
if get('holder') == p.owner and get('state') ~= 'done' then
    redis.call('HSET', entry, 'held_until', number(now))
    redis.call('ZADD', open, number(now), p.name)
    if p.doubt then redis.call('HSET', entry, 'state', 'in_doubt') end
end
return ''
