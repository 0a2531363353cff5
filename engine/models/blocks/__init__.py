"""Models over keys and values in blocks: packed where attention can be ours, or else through transformers' caches.

storage < step < attention are for packed steps, key_values < padded for models with attention of their own,
states < state_layers < carriers < recurrent for models whose layers keep states;
reach and masks say what a token sees.
"""
