"""The course's own files: where they are, the learner's folder with the notebooks, and the teacher's folder."""
