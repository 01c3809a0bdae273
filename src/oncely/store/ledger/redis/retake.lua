-- The holder does anew what another call began.
if get('holder') ~= p.owner or get('state') == 'done' then return '' end
redis.call('HSET', entry, 'begun_by', p.owner, 'state', 'begun')
return cjson.encode({{p.name}})
