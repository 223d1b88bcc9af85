"""A rows file as one batch: plan, submit, watch, export, report. Knows `ports.batches` only."""
