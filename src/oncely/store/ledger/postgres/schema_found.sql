select 1 where to_regnamespace('oncely') is not null
