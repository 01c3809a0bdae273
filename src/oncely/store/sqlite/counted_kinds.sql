-- Which of the kinds in `doc` are counted by name. New ones are taken in while there is room.
insert into oncely_counted_kind (kind)
select i.value from json_each(:doc) i
where not exists (select 1 from oncely_counted_kind k where k.kind = i.value)
limit max(0, :kinds_limit - (select count(*) from oncely_counted_kind));

select k.kind from json_each(:doc) i cross join oncely_counted_kind k on k.kind = i.value
