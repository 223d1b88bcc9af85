"""Who hosts workers. Is handed a way to build one and knows nothing of what it does."""
