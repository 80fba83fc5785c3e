import os

from hypothesis import settings
from tests.support.servers import mariadb_url, postgres_url

__all__ = ["mariadb_url", "postgres_url"]

# what a busy machine or a first compilation takes says nothing about an example
settings.register_profile("full", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=10)
settings.load_profile(os.environ.get("RIVERMOUTH_HYPOTHESIS", "full"))
