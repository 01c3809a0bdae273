insert into oncely_lease (nonce, worker, ids, claimed_at, expires_at)
select :nonce, :worker, json_group_array(t.id), c.now, c.now + :lease_us
from (
    select r.id from oncely_ready r
    where r.queue = :queue and r.due_at <= (select now from oncely_clock)
    order by r.priority desc, r.due_at, r.id limit :limit
) t, oncely_clock c
group by c.now;

delete from oncely_ready
where id in (select m.value from oncely_lease l, json_each(l.ids) m where l.nonce = :nonce)
    and queue = :queue;

select l.epoch, j.id, s.attempts + 1, j.kind, j.queue, j.payload
from oncely_lease l, json_each(l.ids) m
join oncely_job j on j.id = m.value
join oncely_standing s on s.job_id = j.id
where l.nonce = :nonce
order by j.priority desc, j.due_at, j.id
