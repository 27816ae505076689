"""The files of deploy/ that nothing here can build or run are at least well-formed, by real tools, and agree."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
VALUES = yaml.safe_load((DEPLOY / "values.yaml").read_text())


def tool(name: str) -> str:
    """A program of the extra `hub`; skips where it is not installed."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    return found or pytest.skip(f"{name} is not installed: pip install -c constraints.txt -e '.[hub]'")


def run(*command: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)


def test_hadolint_has_nothing_to_say(tmp_path):
    hadolint = tool("hadolint")
    said = run(hadolint, DEPLOY / "Dockerfile")
    assert said.returncode == 0, said.stdout
    worse = tmp_path / "Dockerfile"
    worse.write_text((DEPLOY / "Dockerfile").read_text().replace("WORKDIR /home/jovyan", "RUN cd /home/jovyan"))
    assert run(hadolint, worse).returncode != 0


@pytest.mark.parametrize(("profile", "services"), [("gpu", ["lab"]), ("cpu", ["lab-cpu"])])
def test_compose_reads_its_file(profile, services):
    said = run(
        tool("docker-compose"), "-f", DEPLOY / "compose.yaml", "--profile", profile, "config", "--format", "yaml"
    )
    assert said.returncode == 0, said.stderr
    config = yaml.safe_load(said.stdout)
    assert list(config["services"]) == services
    (service,) = config["services"].values()
    assert int(service["shm_size"]) >= 1 << 30
    assert "cpus" not in service, "Docker makes no container that asks for more than the machine has"
    assert [port["host_ip"] for port in service["ports"]] == ["127.0.0.1"]
    assert (Path(service["build"]["context"]) / service["build"]["dockerfile"]).is_file()


def test_the_image_copies_what_there_is_and_no_answers():
    copied = re.findall(r"^COPY (.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    sources = {name for line in copied for name in line.split()}
    assert sources and all((ROOT / name).exists() for name in sources)
    sent = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sent == sources
    assert not {"solutions", "autograder", "tests"} & sources


def test_the_image_does_not_run_as_root():
    users = re.findall(r"^USER (.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert users == [f"{VALUES['singleuser']['uid']}:{VALUES['singleuser']['fsGid']}"]


def test_one_version_and_one_command():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert {service["image"] for service in compose["services"].values()} == {f"allranks:{version}"}
    assert VALUES["singleuser"]["image"]["tag"] == version
    script = Path(VALUES["singleuser"]["cmd"][1])
    assert (ROOT / script.relative_to("/opt/allranks")).is_file()
    assert str(script) in (DEPLOY / "Dockerfile").read_text()


def test_every_gpu_profile_has_room_for_its_ranks():
    """A rank takes about 3 GB beside its GPU's memory; the chart's own limits are for the profile without one."""
    profiles = [entry for entry in VALUES["singleuser"]["profileList"] if "kubespawner_override" in entry]
    assert [entry["slug"] for entry in profiles] == ["gpu-1", "gpu-4", "gpu-8"]
    for entry in profiles:
        override = entry["kubespawner_override"]
        gpus = int(override["extra_resource_limits"]["nvidia.com/gpu"])
        assert int(override["mem_guarantee"].removesuffix("G")) >= 8 + 4 * gpus
