-- Whether more jobs wait than that.
select count(*) > cast(:few as integer) from (
    select from oncely.ready r limit cast(:few as integer) + 1
) waiting
