-- Whether more jobs wait than that.
select count(*) > :few from (select 1 from oncely_ready r limit :few + 1) waiting
