select name, push_url, push_secrets::text, push_mode
from oncely.queue where push_url is not null order by name
