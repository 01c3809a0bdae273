-- Renew the leases that a worker knows of. One that has run out is not revived, unless it was locked
-- when it should have been renewed. What is not in the answer is lost.
-- A lease that is locked (a transaction ends one of its jobs) is not waited for: the transaction may
-- take long. Nobody takes it back while it is locked, so it is held.
-- The commit waits for no standby: a lease that a promoted standby knows nothing of runs out earlier,
-- and no more.
with known as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        epoch bigint, nonce bigint, was_locked boolean
    ) where set_config('synchronous_commit', 'local', true) is not null
),
mine as materialized (
    select l.epoch, l.nonce, l.ids from oncely.lease l
    where l.epoch = any (array(select k.epoch from known k)) and l.worker = :worker
        and (l.epoch, l.nonce) in (select k.epoch, k.nonce from known k)
),
free as materialized (
    select l.epoch from oncely.lease l
    where l.epoch = any (array(select m.epoch from mine m))
    for no key update skip locked
),
renewed as (
    update oncely.lease l
    set expires_at = clock_timestamp() + :lease_us * interval '1 microsecond'
    from known k
    where l.epoch = any (array(select f.epoch from free f)) and l.worker = :worker
        and k.epoch = l.epoch and k.nonce = l.nonce
        and (k.was_locked or l.expires_at > clock_timestamp())
    returning l.epoch, l.nonce, l.ids
)
select r.epoch, r.nonce, array_to_json(r.ids)::text, false from renewed r
union all
select m.epoch, m.nonce, array_to_json(m.ids)::text, true from mine m
where m.epoch not in (select f.epoch from free f)
