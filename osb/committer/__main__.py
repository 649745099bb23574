"""`python -m osb.committer`: see `osb.committer.main`."""

from osb.committer.main import main

raise SystemExit(main())
