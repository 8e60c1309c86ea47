"""Elastic clusters: what a study costs on nodes that come and go, and the cheapest plan that meets a deadline."""
