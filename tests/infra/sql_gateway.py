"""A session of Flink's SQL gateway, over its REST interface."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any


class Session:
    """Runs statements; temporary tables and views belong to the session. `properties`: Flink's options."""

    def __init__(self, port: int, properties: dict[str, str]) -> None:
        self._url = f"http://localhost:{port}"
        self._path = f"/v3/sessions/{self._call('/v3/sessions', {'properties': properties})['sessionHandle']}"

    def sql(self, statement: str) -> list[list[Any]]:
        """The rows of a statement's answer. Raises HTTPError with the gateway's message for one that fails."""
        handle = self._call(f"{self._path}/statements", {"statement": statement})["operationHandle"]
        rows: list[list[Any]] = []
        place: str | None = f"{self._path}/operations/{handle}/result/0?rowFormat=JSON"
        while place:
            answer = self._call(place)
            if answer["resultType"] == "NOT_READY":
                time.sleep(0.1)
                continue
            rows += [row["fields"] for row in answer["results"]["data"]]
            place = answer.get("nextResultUri")
        return rows

    def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
