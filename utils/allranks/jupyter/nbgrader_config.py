"""No setting: that this file is here keeps nbgrader's extensions from warning every reader of `allranks lab` that none is."""
