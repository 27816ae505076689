"""What several exercises share."""
