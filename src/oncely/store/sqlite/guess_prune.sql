-- Counts that are over.
delete from oncely_sign_in_guess where ends_at <= (select now from oncely_clock)
