select 1 where to_regclass('oncely.migration') is not null
