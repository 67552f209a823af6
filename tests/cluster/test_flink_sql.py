"""The job of the Kubernetes manifest on a standalone cluster, and its pairs by SQL, from Flink's SQL gateway.

There is no Kubernetes here: the manifest is compared with the operator's schema, and the job runs with its arguments
and options.
"""

from __future__ import annotations

import runpy
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from infra import jars
from infra.processes import free_port, listens, wait_for
from infra.sql_gateway import Session
from whenabouts.core import Interval, within
from whenabouts.core.local import timing_join

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "kubernetes"
SCHEMA = "META-INF/fabric8/flinkdeployments.flink.apache.org-v1.yml"
MANIFEST: dict[str, Any] = yaml.safe_load((EXAMPLE / "deployment.yaml").read_text(encoding="utf-8"))


def _unknown(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """The fields that the schema does not have: Kubernetes would drop them without a word."""
    if isinstance(value, list):
        return [name for item in value for name in _unknown(item, schema.get("items", {}), path)]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    known = schema["properties"]
    found = [f"{path}.{name}" for name in value if name not in known]
    return found + [
        more for name in value if name in known for more in _unknown(value[name], known[name], f"{path}.{name}")
    ]


def test_the_manifest_meets_the_operators_schema() -> None:
    """But for the version of Flink: Maven Central's newest release of the schema knows versions up to 1.20."""
    schemas = pytest.importorskip("jsonschema")
    try:
        with zipfile.ZipFile(jars.of_kubernetes_operator()) as archive:
            definition = yaml.safe_load(archive.read(SCHEMA))
    except jars.NotFetchedError as reason:
        pytest.skip(str(reason))
    (version,) = definition["spec"]["versions"]
    assert MANIFEST["apiVersion"] == f"{definition['spec']['group']}/{version['name']}"
    assert MANIFEST["kind"] == definition["spec"]["names"]["kind"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del schema["properties"]["flinkVersion"]["enum"]
    schemas.validate(MANIFEST["spec"], schema)
    assert _unknown(MANIFEST["spec"], schema) == []
    assert _unknown({"job": {"arguments": []}}, schema) == [".job.arguments"]


def _write(folder: Path) -> list[pa.Table]:
    tables = []
    for seed, name in enumerate(("seismic", "acoustic")):
        draw = np.random.default_rng(seed)
        t_max = np.sort(draw.integers(0, 600_000_000, 2000))
        columns = {"station": draw.integers(0, 50, 2000), "t_min": t_max - draw.integers(0, 2_000_000, 2000)}
        tables.append(pa.table(columns | {"t_max": t_max}))
        (folder / name).mkdir(parents=True)
        pq.write_table(tables[-1], folder / name / "rows.parquet", row_group_size=500)
    return tables


def test_the_manifests_job_runs_and_the_sql_gateway_answers_over_a_view_of_its_pairs(tmp_path: Path) -> None:
    pytest.importorskip("pyflink")  # no release for every Python
    from infra.flink_cluster import running_flink

    try:
        gateway_jar = jars.of_sql_gateway()
    except jars.NotFetchedError as reason:
        pytest.skip(str(reason))
    job = MANIFEST["spec"]["job"]
    driver, (image_job, *arguments) = job["args"][: job["args"].index("-py") + 1], job["args"][-3:]
    assert [option for option in driver if option.startswith("-py")] == ["-pyexec", "-pyclientexec", "-py"]
    assert f"COPY examples/kubernetes/job.py {image_job}" in (EXAMPLE / "Dockerfile").read_text(encoding="utf-8")
    data = tmp_path / "data"
    left, right = _write(data / "input")
    time_: Any = Interval("t_min", "t_max", max_uncertainty="2 s")
    expected = timing_join(
        left, right, on="station", left_time=time_, right_time=time_, condition=within("2 s", confidence=0.6)
    )
    options = {  # Kubernetes alone keeps a job manager's leader
        name.replace(".", "__").replace("-", "_"): value.replace("/data", str(data))
        for name, value in MANIFEST["spec"]["flinkConfiguration"].items()
        if not name.startswith(("high-availability", "taskmanager"))
    }
    port = free_port()
    with running_flink(tmp_path / "cluster") as cluster:
        cluster.run(EXAMPLE / "job.py", *(text.replace("/data", str(data)) for text in arguments), **options)
        (done,) = cluster.rest("/jobs/overview")["jobs"]
        assert done["state"] == "FINISHED"
        kept = cluster.rest(f"/jobs/{done['jid']}/checkpoints/config")
        assert kept["state_backend"] == "EmbeddedRocksDBStateBackend"
        gateway = cluster.sql_gateway(gateway_jar, port)
        gateway.start()
        try:
            wait_for(lambda: listens(port), seconds=300, told=cluster.told)
            session = Session(port, {"execution.runtime-mode": "batch"})
            session.sql(runpy.run_path(str(EXAMPLE / "job.py"))["SINK"].format(output=data / "pairs"))
            session.sql("CREATE VIEW probable AS SELECT * FROM found WHERE probability >= 0.8")
            answer = session.sql("SELECT station, COUNT(*) FROM probable GROUP BY station")
        finally:
            gateway.stop()
    stations = Counter(row["station"] for row in expected.to_pylist() if row["probability"] >= 0.8)
    assert dict(answer) == dict(stations)
