-- What was counted in the steps of one length, and the deltas that are not folded yet.
select f.step, f.name, f.kind, f.label, f.n from oncely_traffic f
where f.seconds = :seconds and f.step >= :since
union all
select t.at / 1000000 / :seconds * :seconds, t.name, t.kind, t.label, sum(t.n) from oncely_tally t
where t.at >= :since * 1000000
group by 1, 2, 3, 4
