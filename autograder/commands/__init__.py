"""The commands for a class. Each is a module that holds a click command named `command`; pyproject.toml has its entry point."""
