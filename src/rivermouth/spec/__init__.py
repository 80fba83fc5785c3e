"""What a user defines: frozen values, standard library only."""
