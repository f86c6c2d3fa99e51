"""What stands on collectives: communication hooks, under torch's names."""
