"""What every exercise uses: cases and inputs, the runs on the wire, the causes, the score, the verdict."""
