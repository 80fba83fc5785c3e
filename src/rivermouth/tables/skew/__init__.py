"""The folders by which tasks share what they learned about skew."""
