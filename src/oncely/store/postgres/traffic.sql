-- What was counted in the steps of one length, and the deltas that are not folded yet. In one
-- statement: a fold that commits meanwhile is seen whole or not at all.
select f.step, f.name, f.kind, f.label, f.n from oncely.traffic f
where f.seconds = :seconds and f.step >= :since
union all
select floor(extract(epoch from t.at) / :seconds)::bigint * :seconds, t.name, t.kind, t.label,
    sum(t.n)::bigint
from oncely.tally t
where t.at >= to_timestamp(:since)
group by 1, 2, 3, 4
