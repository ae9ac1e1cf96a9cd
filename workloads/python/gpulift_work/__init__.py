"""What Python arms measure: models and their steps, data, stores, loaders and groups of ranks."""
