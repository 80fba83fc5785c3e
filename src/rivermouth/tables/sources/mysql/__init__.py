"""Tables in MySQL and MariaDB."""
