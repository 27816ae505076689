"""What every room needs: errors, missing extras, the notebook around a program, progress, colours, and where the course's files are."""
