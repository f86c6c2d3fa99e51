"""`genesis.distributions` beside torch's."""
