-- The kinds that are counted by name. There is a bound on them: all others are counted as one, so
-- that nobody can make the counters grow without end by making up kinds.
create table oncely_counted_kind (
    kind text primary key
) without rowid;
insert into oncely_counted_kind (kind)
select c.kind from oncely_counter c
group by c.kind order by sum(c.total) desc, c.kind limit 1000;

-- Guesses of passwords, counted before they are checked, by all servers together. A place is a hash
-- of the name with the address or the device that the guess came from, or of the account. Its count
-- begins anew at `ends_at`.
create table oncely_sign_in_guess (
    place text primary key,
    guesses integer not null,
    ends_at integer not null
) without rowid
