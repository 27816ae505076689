"""What a backup has besides what restore.py plays with real accounts: who came from a platform, and what is in the way of it."""

import json
import os
import pwd
import shutil
import sqlite3
import stat
from pathlib import Path
from types import SimpleNamespace

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


@pytest.fixture
def homes(hub, tmp_path, monkeypatch) -> tuple[object, Path]:
    """Two people, mal and zoe, whose homes lie in a folder and who are this account; and a folder for a stand-in of tar."""
    backup, _ = hub
    me = pwd.getpwuid(os.geteuid())
    people = {name: {"uid": me.pw_uid, "home": str(tmp_path / name), "groups": []} for name in ("mal", "zoe")}
    for name in people:
        (tmp_path / name).mkdir()
        (tmp_path / name / "work.txt").write_text(name)

    def known(name: str) -> SimpleNamespace:
        home = str(tmp_path / name) if name in people else me.pw_dir
        return SimpleNamespace(pw_dir=home, pw_uid=me.pw_uid, pw_gid=me.pw_gid, pw_name=name)

    monkeypatch.setattr(backup, "pwd", SimpleNamespace(getpwnam=known, getpwuid=pwd.getpwuid))
    monkeypatch.setattr(backup, "accounts", lambda grader: people)
    monkeypatch.setattr(os, "getgrouplist", lambda *_: os.getgroups())
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return backup, tmp_path


@pytest.mark.parametrize("does", ["kill -KILL $$", "kill -STOP $$", "echo '\\033]0;owned\\007' >&2; exit 2"])
def test_who_ends_or_stops_the_packing_of_the_own_home_stops_nobody_elses_backup(homes, monkeypatch, does):
    """The program that packs a home has its owner's rights, so that its owner may do so."""
    backup, folder = homes
    tar = folder / "bin" / "tar"
    tar.write_text(f'#!/bin/sh\ncase "$*" in *{folder}/mal*) {does};; esac\nexec {shutil.which("tar")} "$@"\n')
    tar.chmod(0o755)
    monkeypatch.setattr(backup, "HOME_S", 1)
    told = backup.save(folder / "saved")
    assert [line for line in told if line.startswith(f"{folder}/mal can't be packed") and "NOT SAVED" in line]
    assert all(line.isprintable() for line in told)
    (folder / "zoe" / "work.txt").unlink()
    without(backup_site(folder))
    tar.unlink()
    backup.restore(folder / "saved")
    assert (folder / "zoe" / "work.txt").read_text() == "zoe"


def test_a_home_that_can_not_be_restored_is_named_and_stops_nobody_elses(homes):
    backup, folder = homes
    backup.save(folder / "saved")
    archive = folder / "saved" / "homes" / "mal.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-20])
    manifest = json.loads((folder / "saved" / "manifest.json").read_text())
    manifest["parts"]["homes/mal.tar.gz"] = backup.digest(archive)
    (folder / "saved" / "manifest.json").write_text(json.dumps(manifest))
    for path in (*(folder / "mal").iterdir(), *(folder / "zoe").iterdir()):
        path.unlink()
    without(backup_site(folder))
    steps = backup.restore(folder / "saved")
    assert [step for step in steps if step.startswith(f"NOT WHOLE: {folder}/mal")]
    assert (folder / "zoe" / "work.txt").read_text() == "zoe"


def test_a_file_that_is_a_hole_takes_no_room_and_no_time(homes):
    """Who makes a file of exabytes, which takes nothing on the disk, would hold up the backup for ever."""
    backup, folder = homes
    with open(folder / "mal" / "hole", "wb") as hole:
        hole.truncate(1 << 29)
    backup.save(folder / "saved")
    assert (folder / "saved" / "homes" / "mal.tar.gz").stat().st_size < 10_000
    for path in (*(folder / "mal").iterdir(), *(folder / "zoe").iterdir()):
        path.unlink()
    without(backup_site(folder))
    backup.restore(folder / "saved")
    about = (folder / "mal" / "hole").stat()
    assert about.st_size == 1 << 29 and about.st_blocks < 1000


def backup_site(folder: Path) -> Site:
    """The hub's folders of `hub`."""
    settings = {f"ALLRANKS_HUB_{name.upper()}": str(folder / name) for name in ("state", "exchange")}
    return Site.of(settings | {"ALLRANKS_HUB_LTI_LAUNCHES": str(folder / "lti" / "launches.json")})
