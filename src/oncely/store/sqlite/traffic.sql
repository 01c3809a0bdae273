-- What was counted in the steps of one length, and the deltas that are not folded yet.
with named as materialized (
    select kind from oncely_counted_kind
    union all
    select x.kind from (
        select t.kind from oncely_tally t
        where not exists (select 1 from oncely_counted_kind k where k.kind = t.kind)
        group by t.kind order by min(t.rowid)
        limit max(0, :kinds_limit - (select count(*) from oncely_counted_kind))
    ) x
)
select c.step, c.name, coalesce(k.kind, :other), c.label, sum(c.n)
from (
    select f.step, f.name, f.kind, f.label, f.n from oncely_traffic f
    where f.seconds = :seconds and f.step >= :since
    union all
    select t.at / 1000000 / :seconds * :seconds, t.name, t.kind, t.label, t.n from oncely_tally t
    where t.at >= :since * 1000000
) c
left join named k on k.kind = c.kind
group by 1, 2, 3, 4
