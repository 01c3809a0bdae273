select name, push_url, push_secrets, push_mode
from oncely_queue where push_url is not null order by name
