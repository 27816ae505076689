"""What every room needs: errors, extras, the notebook around a program, progress, colours, the course's files."""
