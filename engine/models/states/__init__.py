"""Models whose layers keep states, as caches of transformers show them: storage < layers < carriers < runner."""
