-- Renew the leases that a worker knows of. One that has run out is not revived. What is not in the
-- answer is lost.
-- A lease that is locked (a transaction ends one of its jobs) is not waited for: the transaction may
-- take long. Nobody takes it back while it is locked, so it is held; and it is renewed beside, for
-- the time after that.
-- The commit waits for no standby: a lease that a promoted standby knows nothing of runs out earlier,
-- and no more.
with known as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (epoch bigint, nonce bigint)
    where set_config('synchronous_commit', 'local', true) is not null
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
    from mine m
    where l.epoch = any (array(select f.epoch from free f)) and l.worker = :worker
        and m.epoch = l.epoch and m.nonce = l.nonce
        and (
            l.expires_at > clock_timestamp() or exists (
                select from oncely.locked_lease k
                where k.epoch = l.epoch and k.nonce = l.nonce
                    and k.expires_at > clock_timestamp()
                offset 0
            )
        )
    returning l.epoch, l.nonce, l.ids
),
beside as (
    insert into oncely.locked_lease (epoch, nonce, expires_at)
    select m.epoch, m.nonce, clock_timestamp() + :lease_us * interval '1 microsecond' from mine m
    where m.epoch not in (select f.epoch from free f)
    on conflict (epoch) do update set nonce = excluded.nonce, expires_at = excluded.expires_at
)
select r.epoch, r.nonce, array_to_json(r.ids)::text from renewed r
union all
select m.epoch, m.nonce, array_to_json(m.ids)::text from mine m
where m.epoch not in (select f.epoch from free f)
