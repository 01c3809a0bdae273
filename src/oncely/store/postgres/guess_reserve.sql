-- One guess more in this place; how many there are now, and how long until the count begins anew.
insert into oncely.sign_in_guess as g (place, guesses, ends_at)
values (:place, 1, clock_timestamp() + cast(:window_us as bigint) * interval '1 microsecond')
on conflict (place) do update set
    guesses = case when g.ends_at <= clock_timestamp() then 1 else g.guesses + 1 end,
    ends_at = case when g.ends_at <= clock_timestamp() then excluded.ends_at else g.ends_at end
returning guesses, (extract(epoch from ends_at - clock_timestamp()) * 1000000)::bigint
