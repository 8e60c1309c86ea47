"""Money: what studies cost on clusters that grow and shrink, in simulation."""
