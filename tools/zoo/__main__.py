"""The making of the stored agents: python tools/zoo train | export | check"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this folder first on its path, where its modules would be found as
    # `options`, `train`, ...; the package itself is in the folder above.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

    from zoo.commands import main

    main()
