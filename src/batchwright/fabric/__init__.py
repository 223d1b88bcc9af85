"""Who hosts workers, and what of a process they run on: its clock, chance, loop and memory. Is handed a way to build a
worker and knows nothing of what it does."""
