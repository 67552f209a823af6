"""Run in a process of its own: the command line over files whose bytes were changed at random, `SEED COUNT FOLDER`.

Prints each file before it reads it, so that the last line names the file that ended the process.
"""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from whenabouts.cli import main

ROWS = 40
TABLE = pa.table(
    {
        "t": pa.array(range(1_700_000_000_000_000, 1_700_000_000_000_000 + ROWS), pa.timestamp("us", "UTC")),
        "k": [f"k{number % 3}é" for number in range(ROWS)],
        "v": pa.array([number / 7 for number in range(ROWS)]),
        "w": [[number, None] for number in range(ROWS)],
    }
)
TOKENS = [
    b"null", b"\n", b"\r", b'"', b"'", b",", b"{", b"}", b"[" * 70, b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"9" * 40,
    b"1e999", b"NaN", b"-", b"\\u0000", b"\\ud800", b":", b"\x1b[31m", b'{"t":', b"true", b"0000-00-00", b"\xe9",
]  # fmt: skip


def contents() -> dict[str, bytes]:
    """A valid file of each kind."""
    from whenabouts.cli.outputs import json_lines

    flat = TABLE.drop_columns("w")
    lines = json_lines(TABLE)
    text = "t,k,v\n" + "".join(f"{row['t'].isoformat()},{row['k']},{row['v']}\n" for row in flat.to_pylist())
    found = {"csv": text.encode(), "jsonl": ("\n".join(lines) + "\n").encode()}
    for name, options in (("parquet", {"compression": "none"}), ("zstd.parquet", {"compression": "zstd"})):
        sink = io.BytesIO()
        pq.write_table(TABLE, sink, **options)
        found[name] = sink.getvalue()
    return found


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The bytes with some changes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1:
                data[at:at] = rng.choice(TOKENS)
            case 2:
                del data[at : at + rng.choice((1, 3, 50))]
            case 3 if data:
                data[at % len(data)] = rng.choice((0, 0xFF, 0x7F, 0x80))
            case 4:
                start = rng.randrange(len(data) + 1)
                data[at:at] = data[start : start + rng.choice((5, 60))]
            case _ if rng.random() < 0.2:
                del data[at:]
    return bytes(data)


COMMANDS = (
    "coalesce {} --time t --group k --values v -o out.jsonl --rejects bad.csv",
    "coalesce {} --time t --values v",
    "join {} {} --on k --left-time t --right-time t --within 1us --confidence 1 -o out.csv --max-pairs 100000",
    "query @text.sql --input s={} -o out.parquet",
    "plan text.sql --input s={}",
)


def main_of_fuzz(seed: int, count: int) -> None:
    """Every run must end with a code of ours, in one line and without a traceback."""
    rng = random.Random(seed)
    sound = contents()
    Path("text.sql").write_text("SELECT k, v, n FROM s [ROWS 9] COALESCE ON v GROUP BY k")
    ends: dict[int, int] = {}
    for number in range(count):
        kind = rng.choice(list(sound))
        path = Path(f"x.{kind}")
        path.write_bytes(mutated(sound[kind], rng))
        words = rng.choice(COMMANDS).replace("{}", path.name).split()
        sys.stdout.write(f"{number} {' '.join(words)}\n")
        sys.stdout.flush()
        done = CliRunner().invoke(main, words)
        ends[done.exit_code] = ends.get(done.exit_code, 0) + 1
        assert done.exit_code in (0, 2, 3), (number, words, done.exit_code, done.output, done.exception)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert "Traceback" not in done.output, done.output
        errors = done.stderr
        assert not any(char < " " and char != "\n" for char in errors), repr(errors)
    sys.stdout.write(f"ends {dict(sorted(ends.items()))}\n")


if __name__ == "__main__":
    main_of_fuzz(int(sys.argv[1]), int(sys.argv[2]))
