-- A person's answer: it happened, with this result; or it did not, and the intent is gone.
insert into oncely_resolution (job_id, name, at, happened, by_whom, note)
select :id, :name, c.now, :happened, :by_whom, :note from oncely_clock c;

insert into oncely_tally (name, kind, label, n)
select 'resolved', j.kind, case when :happened then 'happened' else 'did_not_happen' end, 1
from oncely_job j where j.id = :id;

insert into oncely_tally (name, kind, label, n)
select 'effects', j.kind, 'resolved', 1 from oncely_job j where j.id = :id and :happened;

update oncely_effect
set state = 'done', source = 'resolved', ended_at = (select now from oncely_clock),
    result = :result
where job_id = :id and name = :name and :happened;

delete from oncely_effect where job_id = :id and name = :name and not :happened
