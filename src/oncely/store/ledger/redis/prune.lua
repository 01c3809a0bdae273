-- Only what is known to have happened, and long ago. The rows add up to how many they were.
local names = redis.call('ZRANGE', over, '-inf', '(' .. number(now - p.age_us), 'BYSCORE', 'LIMIT', 0, p.limit)
for _, name in ipairs(names) do
    redis.call('DEL', prefix .. name)
    redis.call('ZREM', over, name)
end
return cjson.encode({{#names}})
