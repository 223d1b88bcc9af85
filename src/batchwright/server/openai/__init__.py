"""OpenAI's face: files, batches and models, for the stock `openai` SDK."""
