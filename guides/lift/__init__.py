"""From states to tokens: masks, distances, and what completes a text within a budget."""
