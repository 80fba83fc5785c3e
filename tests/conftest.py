from servers import mariadb_url, postgres_url

__all__ = ["mariadb_url", "postgres_url"]
