"""Graph partitioning: compiled clusters, and host ops between them."""
