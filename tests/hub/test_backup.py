"""What a backup has besides what restore.py plays with real accounts: who came from a platform, and what is in the way of it."""

import json
import os
import pwd
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest
from allranks.machine.doctor.hub import Site
from loading import loaded

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
TOLD = {"platform": {"name": "Moodle"}, "people": {"ada": {"sub": "u-7", "email": "ada@example.org"}}}


@pytest.fixture
def hub(tmp_path, monkeypatch) -> tuple[object, Site]:
    """The program, and a hub in a folder, with no accounts but the grader's, which is this one."""
    backup = loaded(DEPLOY / "backup.py")
    (tmp_path / "state").mkdir()
    (tmp_path / "exchange").mkdir()
    sqlite3.connect(tmp_path / "state" / "jupyterhub.sqlite").close()
    settings = {f"ALLRANKS_HUB_{name.upper()}": str(tmp_path / name) for name in ("state", "exchange")}
    settings["ALLRANKS_HUB_LTI_LAUNCHES"] = str(tmp_path / "lti" / "launches.json")
    settings["ALLRANKS_HUB_GRADER"] = pwd.getpwuid(os.geteuid()).pw_name
    site = Site.of(settings)
    monkeypatch.setattr(Site, "of_this_machine", lambda: site)
    monkeypatch.setattr(backup, "SETTINGS", tmp_path / "no-settings")
    monkeypatch.setattr(backup, "accounts", lambda grader: {})
    mask = os.umask(0o022)
    yield backup, site
    os.umask(mask)


def without(site: Site) -> None:
    """Takes the hub away."""
    for folder in (site.state, site.exchange, site.launches.parent):
        shutil.rmtree(folder, ignore_errors=True)


def test_who_came_is_saved_and_restored_for_the_grader_alone(hub, tmp_path):
    backup, site = hub
    site.launches.parent.mkdir()
    site.launches.write_text(json.dumps(TOLD))
    backup.save(tmp_path / "saved")
    without(site)
    assert str(site.launches) in backup.restore(tmp_path / "saved", dry_run=True) and not site.launches.exists()
    assert str(site.launches) in backup.restore(tmp_path / "saved")
    assert json.loads(site.launches.read_text()) == TOLD
    assert [stat.S_IMODE(path.stat().st_mode) for path in (site.launches.parent, site.launches)] == [0o750, 0o640]
    assert site.launches.stat().st_gid == pwd.getpwnam(site.grader).pw_gid


def test_launches_that_are_there_are_not_overwritten(hub, tmp_path):
    backup, site = hub
    site.launches.parent.mkdir()
    site.launches.write_text(json.dumps(TOLD))
    backup.save(tmp_path / "saved")
    without(site)
    site.launches.parent.mkdir()
    site.launches.write_text("{}")
    with pytest.raises(backup.BackupError, match=r"launches\.json is there already"):
        backup.restore(tmp_path / "saved")
    assert site.launches.read_text() == "{}" and not site.state.exists()


def test_a_hub_without_launches_is_saved_and_restored(hub, tmp_path):
    backup, site = hub
    backup.save(tmp_path / "saved")
    without(site)
    assert str(site.launches) not in backup.restore(tmp_path / "saved")
    assert (site.state / "jupyterhub.sqlite").is_file() and not site.launches.exists()
