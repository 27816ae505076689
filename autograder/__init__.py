"""What only an instructor runs: nbgrader's configuration and the trusted step that marks submissions."""
