"""The workshop board: the server behind `allranks board`, and its page for a projector."""
