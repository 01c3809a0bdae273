select oncely.channel()
