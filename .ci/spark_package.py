"""Write the Spark package: a JAR that has the Python package in it, as a Maven repository in dist/repository.

`spark-submit --packages` and `spark.jars.packages` put the JARs that they fetch onto the Python path of the driver and
of the executors. So a JAR with Python modules is all that it takes; GraphFrames comes that way, too.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

from whenabouts.core.hosting.worker_archive import EPOCH, build_worker_archive

ROOT = Path(__file__).parents[1]
GROUP, ARTIFACT = "io.github.whenabouts", "whenabouts-spark"

POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <packaging>jar</packaging>
  <name>{name}</name>
  <description>{description}</description>
  <licenses>
    <license>
      <name>{license}</name>
      <distribution>repo</distribution>
    </license>
  </licenses>
</project>
"""

MANIFEST = """Manifest-Version: 1.0
Implementation-Title: {name}
Implementation-Version: {version}

"""


def main(target: Path) -> None:
    """Write the JAR, the POM and their checksums where a Maven repository has them; print the coordinates."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {key: escape(project[key]) for key in ("name", "version", "description", "license")}
    pom = POM.format(group=GROUP, artifact=ARTIFACT, **names).encode()
    folder = target.joinpath(*GROUP.split("."), ARTIFACT, project["version"])
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{ARTIFACT}-{project['version']}"
    jar = folder / f"{stem}.jar"
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(jar, "w") as written:
        written.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", EPOCH), MANIFEST.format(**names))
        written.writestr(zipfile.ZipInfo(f"META-INF/maven/{GROUP}/{ARTIFACT}/pom.xml", EPOCH), pom)
        written.writestr(zipfile.ZipInfo("META-INF/LICENSE", EPOCH), (ROOT / "LICENSE").read_bytes())
        with zipfile.ZipFile(build_worker_archive(scratch)) as modules:
            for entry in modules.infolist():
                written.writestr(zipfile.ZipInfo(entry.filename, EPOCH), modules.read(entry))
    (folder / f"{stem}.pom").write_bytes(pom)
    for file in (jar, folder / f"{stem}.pom"):
        checksum = hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
        file.with_name(f"{file.name}.sha1").write_text(checksum)
    print(f"{GROUP}:{ARTIFACT}:{project['version']} in {target.as_uri()}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist" / "repository").resolve())
