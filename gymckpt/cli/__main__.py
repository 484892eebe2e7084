"""`python -m gymckpt.cli`"""

from __future__ import annotations

from gymckpt.cli.main import main

if __name__ == "__main__":
    main()
