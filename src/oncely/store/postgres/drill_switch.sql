-- How the switch stands; no row if nobody has ever used it.
select s.stopped, s.by_whom, (extract(epoch from s.at) * 1000000)::bigint
from oncely.drill_switch s
