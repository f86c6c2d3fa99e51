"""Random programs that are run plain and compiled: the tables they are drawn from, and how they run."""
