"""Images that stand in prompts: what callers give, read into pixels within bounds."""
