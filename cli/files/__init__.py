"""What a run over many prompts reads and writes: prompts, results in their order, and where an ended run goes on."""
