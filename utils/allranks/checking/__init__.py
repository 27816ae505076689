"""The machinery that every exercise shares: inputs, the run on the wire, the judgement, the verdict."""
