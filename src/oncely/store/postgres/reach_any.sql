-- How far back so many jobs go.
select j.id::text from oncely.job j
where j.id < cast(:before as uuid) and j.id >= cast(:lowest as uuid)
order by j.id desc limit 1 offset :looked
