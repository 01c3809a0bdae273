-- How far back so many jobs go.
select j.id from oncely_job j
where j.id < :before and j.id >= :lowest
order by j.id desc limit 1 offset :looked
