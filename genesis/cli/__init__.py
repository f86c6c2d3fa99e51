"""The `genesis` command: one subcommand a file."""
