from hypothesis import settings

from support.servers import mariadb_url, postgres_url

__all__ = ["mariadb_url", "postgres_url"]

# what a busy machine or a first compilation takes says nothing about an example
settings.register_profile("rivermouth", deadline=None)
settings.load_profile("rivermouth")
