"""The course around the notebooks: a learner's folder, the map, where a reader stands, the teacher's folder, the board."""
