"""The text that is read: forms, names, values, scenes told in passages, tasks on them, documents."""
