select s.kind, s.who, u.role, t.name, t.scopes, t.queues, c.now - s.seen_at
from oncely_session s
cross join oncely_clock c
left join oncely_user u on s.kind = 'user' and u.name = s.who and u.stamp = s.stamp
    and u.removed_at is null
left join oncely_token t on s.kind = 'token' and t.id = s.who and t.revoked_at is null
    and coalesce(t.expires_at > c.now, true)
where s.id = :id and (u.name is not null or t.id is not null)
    and s.seen_at > c.now - :idle_us and s.created_at > c.now - :life_us
