"""The bench of clusters: W1 on Ray, what nodes hold and exchange, what a hop costs, what the object store keeps."""
