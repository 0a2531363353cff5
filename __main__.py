"""`python -m trellm`: the trellm command."""

import sys

from .cli import main

sys.exit(main())
