select exists (select 1 from oncely_token) or exists (select 1 from oncely_user)
