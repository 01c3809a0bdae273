select s.kind, s.who, u.role, t.name, t.scopes, t.queues,
    (extract(epoch from c.now - s.seen_at) * 1000000)::bigint
from oncely.session s
cross join (select clock_timestamp() as now) c
left join oncely.user u on s.kind = 'user' and u.name = s.who and u.stamp = s.stamp
    and u.removed_at is null
left join oncely.token t on s.kind = 'token' and t.id = s.who and t.revoked_at is null
    and coalesce(t.expires_at > c.now, true)
where s.id = :id and (u.name is not null or t.id is not null)
    and s.seen_at > c.now - cast(:idle_us as bigint) * interval '1 microsecond'
    and s.created_at > c.now - cast(:life_us as bigint) * interval '1 microsecond'
