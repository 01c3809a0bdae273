select exists (select 1 from oncely_token)
