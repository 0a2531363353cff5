"""Tasks in plain English with their answers, the ways in which they are answered, and how answers are counted."""
