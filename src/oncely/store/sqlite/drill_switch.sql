-- How the switch stands; no row if nobody has ever used it.
select s.stopped, s.by_whom, s.at from oncely_drill_switch s
