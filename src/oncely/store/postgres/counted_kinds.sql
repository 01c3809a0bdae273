-- Which of the kinds in `doc` are counted by name. New ones are taken in while there is room. One
-- transaction at a time, the next with a snapshot of its own: there is never one too many.
select pg_advisory_xact_lock(hashtextextended('oncely.counted_kind', 0));

insert into oncely.counted_kind (kind)
select i.kind from json_array_elements_text(cast(cast(:doc as text) as json)) as i (kind)
where not exists (select from oncely.counted_kind k where k.kind = i.kind)
limit greatest(0, cast(:kinds_limit as bigint) - (select count(*) from oncely.counted_kind));

select k.kind
from json_array_elements_text(cast(cast(:doc as text) as json)) as i (kind)
join oncely.counted_kind k on k.kind = i.kind
