-- One guess more in this place; how many there are now, and how long until the count begins anew.
insert into oncely_sign_in_guess (place, guesses, ends_at)
select :place, 1, c.now + :window_us from oncely_clock c where true
on conflict (place) do update set
    guesses = case
        when ends_at <= (select now from oncely_clock) then 1 else guesses + 1 end,
    ends_at = case
        when ends_at <= (select now from oncely_clock) then excluded.ends_at else ends_at end;

select g.guesses, g.ends_at - c.now
from oncely_sign_in_guess g cross join oncely_clock c where g.place = :place
