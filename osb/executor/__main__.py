"""`python -m osb.executor`: see `osb.executor.main`."""

from osb.executor.main import main

raise SystemExit(main())
