-- The jobs that an idempotency key stands for, in whatever queue, or that hold a unique key, of
-- whatever kind. The queues and kinds that have keys are found by a seek each.
with recursive queues (name) as (
    select min(k.queue) from oncely_idempotency_key k
    union all
    select (select min(k.queue) from oncely_idempotency_key k where k.queue > q.name)
    from queues q where q.name is not null
),
kinds (name) as (
    select min(u.kind) from oncely_unique_key u
    union all
    select (select min(u.kind) from oncely_unique_key u where u.kind > q.name)
    from kinds q where q.name is not null
)
-- Scalar subqueries: for a join SQLite may read the whole table, to make a filter of it first.
select job_id from (
    select (
        select k.job_id from oncely_idempotency_key k where k.queue = q.name and k.key = :key
    ) as job_id from queues q
    union
    select (
        select u.job_id from oncely_unique_key u where u.kind = q.name and u.key = :key
    ) from kinds q
) x
where job_id is not null
limit :limit
