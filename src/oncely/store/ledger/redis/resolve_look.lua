if redis.call('EXISTS', entry) == 0 then return '' end
return cjson.encode({{get('state'), tonumber(get('held_until')) > now}})
