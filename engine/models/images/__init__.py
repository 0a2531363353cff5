"""Images of prompts: what a model's processor makes of them, and their features, which stand in the places of tokens.

families says which architectures are run, and in what they differ; rows numbers the rows of features among token ids;
processing reads images and prompts by the processor of transformers; features computes rows once for equal images and
keeps them; vision puts these together for a runner.
"""
