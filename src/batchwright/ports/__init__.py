"""The contracts between the parts, a page each. A docstring here is the contract; its exam is under tests/exams."""
