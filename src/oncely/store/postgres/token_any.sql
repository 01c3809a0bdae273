select exists (select from oncely.token)
