"""What runs inside a rank beside the answer. A rank in the sandbox sees this folder of `checking` and nothing else of it."""
