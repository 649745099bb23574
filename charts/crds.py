"""Write the chart's CustomResourceDefinitions from the one source: `python charts/crds.py`; a test compares."""

from __future__ import annotations

from pathlib import Path

import yaml

from osb.api.crds import crds

FILES = Path(__file__).parent / "osb" / "files"
FOLDERS = {"crds": False, "crds-cel": True}


def texts() -> dict[Path, str]:
    """The files and what must be in them; `crds-cel` has validation rules, for servers from 1.30 on."""
    return {
        FILES / folder / f"{crd['spec']['names']['plural']}.yaml": yaml.safe_dump(crd, sort_keys=False, width=120)
        for folder, cel in FOLDERS.items()
        for crd in crds(cel=cel)
    }


if __name__ == "__main__":
    for path, text in texts().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
