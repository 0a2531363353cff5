"""What goes to another process goes as a description: what made it, which is made again there, once."""
