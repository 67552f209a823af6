"""Whether a Docker engine runs here."""

from __future__ import annotations

from functools import cache


@cache
def has_docker() -> bool:
    """Queries the engine itself: the client may be installed without one."""
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        return False
    try:
        client = docker.from_env(timeout=5)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except DockerException:
        return False
    finally:
        client.close()
