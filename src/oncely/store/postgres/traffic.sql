-- What was counted in the steps of one length, and the deltas that are not folded yet. In one
-- statement: a fold that commits meanwhile is seen whole or not at all.
with named as materialized (
    select k.kind from oncely.counted_kind k
    union all
    (
        select t.kind from oncely.tally t
        where not exists (select from oncely.counted_kind k where k.kind = t.kind)
        group by t.kind order by min(t.at), t.kind
        limit greatest(0, cast(:kinds_limit as bigint) - (select count(*) from oncely.counted_kind))
    )
)
select c.step, c.name, coalesce(k.kind, cast(:other as text)), c.label, sum(c.n)::bigint
from (
    select f.step, f.name, f.kind, f.label, f.n from oncely.traffic f
    where f.seconds = :seconds and f.step >= :since
    union all
    select floor(extract(epoch from t.at) / :seconds)::bigint * :seconds, t.name, t.kind, t.label, t.n
    from oncely.tally t
    where t.at >= to_timestamp(:since)
) c
left join named k on k.kind = c.kind
group by 1, 2, 3, 4
