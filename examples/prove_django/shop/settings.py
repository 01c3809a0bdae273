"""A project as small as it can be: one app, one database, tasks that run at once."""

SECRET_KEY = "not a secret: an example"
DEBUG = True
INSTALLED_APPS = ["django_tasks", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TASKS = {"default": {"BACKEND": "django_tasks.backends.immediate.ImmediateBackend"}}
ROOT_URLCONF = "shop.urls"
USE_TZ = True
