-- The jobs that an idempotency key stands for, in whatever queue, or that hold a unique key, of
-- whatever kind. The queues and kinds that have keys are found by a seek each.
with recursive queues (name) as (
    select min(k.queue) from oncely.idempotency_key k
    union all
    select (select min(k.queue) from oncely.idempotency_key k where k.queue > q.name)
    from queues q where q.name is not null
),
kinds (name) as (
    select min(u.kind) from oncely.unique_key u
    union all
    select (select min(u.kind) from oncely.unique_key u where u.kind > q.name)
    from kinds q where q.name is not null
)
select k.job_id::text from queues q
cross join lateral (
    select k.job_id from oncely.idempotency_key k where k.queue = q.name and k.key = :key offset 0
) k
union
select u.job_id::text from kinds q
cross join lateral (
    select u.job_id from oncely.unique_key u where u.kind = q.name and u.key = :key offset 0
) u
limit :limit
