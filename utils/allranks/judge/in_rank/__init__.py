"""What runs inside a rank with the answer. Of `checking`, ranks in the sandbox see only this folder."""
