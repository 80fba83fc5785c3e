"""What a user says: frozen values, standard library only."""
