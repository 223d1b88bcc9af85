"""Values and decisions: no I/O, no await, no clock. Every function here takes `now` and chance as arguments."""
