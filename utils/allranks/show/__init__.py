"""What one sees: the player, pictures, plots and the other widgets."""
