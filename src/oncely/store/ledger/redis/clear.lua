-- It did not happen, and the call that began it knows.
if get('begun_by') == p.owner and get('state') ~= 'done' then
    redis.call('DEL', entry)
    redis.call('ZREM', open, p.name)
end
return ''
