"""Images and audio in prompts: their processing and features, which take the places of tokens.

families lists supported architectures; rows encodes feature rows as token ids; processing applies processors of
transformers; features computes and caches features; encoder combines these for a runner.
"""
