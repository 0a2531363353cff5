"""Random inputs: patterns, schemas, grammars, options, files, by rules and by changes to known ones."""
