select exists (select from oncely.token) or exists (select from oncely.user)
