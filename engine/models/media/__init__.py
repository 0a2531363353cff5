"""Images and audio of prompts: what a processor makes of them, and their features, which stand in the places of tokens.

families says which architectures are run, and in what they differ; rows numbers the rows of features among token ids;
processing reads them and prompts by the processor of transformers; features computes rows once for equal contents
and keeps them; encoder puts these together for a runner.
"""
