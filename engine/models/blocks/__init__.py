"""Models over keys and values in blocks: packed where attention can be ours, or else through transformers' caches.

storage < step < attention < packed run chunks packed, key_values < padded those of models with attention of their own,
states < state_layers < carriers < recurrent those of models whose layers keep states;
reach and masks say what a token sees.
"""
