-- Counts that are over. Not those that somebody counts in just now: nobody waits for another here.
delete from oncely.sign_in_guess where place in (
    select g.place from oncely.sign_in_guess g
    where g.ends_at <= clock_timestamp() for update skip locked
)
