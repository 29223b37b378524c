"""python -m manyhands"""

import sys

# Python has put the working directory first on the path. A file that lies there, beside
# data from others, must not be imported in place of a library.
if not sys.flags.safe_path:
    del sys.path[0]

from manyhands.cli.main import main

main()
