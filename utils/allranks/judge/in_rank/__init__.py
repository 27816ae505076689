"""What runs inside a rank with the answer. Of the judge, ranks in the sandbox see only this folder."""
