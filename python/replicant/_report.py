"""fleet --report RUN ...: one HTML file that shows runs, without any network.

Plotly (the package plotly) draws the curves; its script is copied into the file.
"""

import argparse
import base64
import csv
import hmac
import html
import http.server
import ipaddress
import json
import math
import os
import pathlib
import secrets
import socket
import sys
import urllib.parse

from replicant import _run_files
from replicant.errors import ConfigError, Error, IoError

# Bytes of the videos in a file; others are named.
MOST_VIDEO_BYTES = 24 << 20
# Points of a curve in a file; a longer one is thinned out.
MOST_POINTS = 2000
REFRESH_S = 5

# title, unit, [(file, number, label)]; those of the first with points are drawn
CHARTS = [
    ("Return", "", [("evaluations", "return", "evaluation"), ("fleet", "actors/return", "training")]),
    ("Critic loss", "", [("learner", "critic_loss", "")]),
    ("Policy loss", "", [("learner", "policy_loss", "")]),
    ("Loss", "", [("learner", "loss", "")]),
    ("Accuracy", "", [("learner", "accuracy", "training"),
                      ("learner", "evaluation_accuracy", "evaluation")]),
    ("Generator and discriminator loss", "", [("learner", "generator_loss", "generator"),
                                              ("learner", "discriminator_loss", "discriminator")]),
    ("Loss of the prediction", "", [("learner", "latent_loss", "latent"),
                                    ("learner", "reward_loss", "reward")]),
    ("Value", "", [("learner", "value", "")]),
    ("Share of the time that the learner waits", "", [("learner", "wait_share", "")]),
    ("Updates per second", "1/s", [("learner", "steps_per_s", "")]),
    ("Frames per second", "1/s", [("fleet", "actors/frames_per_s", "")]),
    ("Samples per insert", "", [("fleet", "replay/samples_per_insert", "")]),
    ("Items in the replay", "", [("fleet", "replay/items", "")]),
    ("Saturated actions", "", [("learner", "policy_saturation", "")]),
]


def _number(value):
    """A number as a page can have it; None for one that is not finite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _thinned(values):
    step = -(-len(values) // MOST_POINTS)
    return values if step <= 1 else [*values[:-1:step], values[-1]]


class RunFiles:
    """What the folder of a run holds now."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.config = _run_files.flat_yaml(folder / "config.yaml")
        self.recipe = _run_files.flat_yaml(folder / "recipe.yaml")
        self.state = _run_files.flat_yaml(folder / "state.yaml")
        self.files = {kind: _run_files.records(folder / f"{kind}.jsonl")
                      for kind in ("learner", "fleet", "evaluations")}
        self.report = _run_files.status(folder)

    def axes(self, kind):
        """Step, frames and seconds of each record."""
        records = self.files[kind]
        seconds = {}
        if kind == "fleet":
            # its records have no seconds: those of the learner at the same step
            seconds = {record.get("step"): record.get("seconds")
                       for record in self.files["learner"]}
        return {"updates": [_number(record.get("step")) for record in records],
                "frames": [_number(record.get("frames")) for record in records],
                "seconds": [_number(record.get("seconds", seconds.get(record.get("step"))))
                            for record in records]}

    def curve(self, kind, number):
        """A curve over all axes, or None without a point."""
        axes = self.axes(kind)
        points = [(_number(record.get(number)), *(axes[axis][i] for axis in axes),
                   _number(record.get("return_std")) if number == "return" else None)
                  for i, record in enumerate(self.files[kind]) if number in record]
        points = _thinned([point for point in points if point[0] is not None])
        if not points:
            return None
        columns = list(zip(*points))
        curve = dict(zip(("y", *axes), map(list, columns)))
        if any(spread is not None for spread in columns[-1]):
            curve["spread"] = list(columns[-1])
        return curve

    def newest(self, kind, number):
        for record in reversed(self.files[kind]):
            if number in record:
                return _number(record[number])
        return None

    def best(self):
        records = [record for record in self.files["evaluations"]
                   if _number(record.get("return")) is not None]
        return max(records, key=lambda record: record["return"], default=None)

    def summary(self):
        """Rows of the table of all runs."""
        config, best = self.config, self.best()
        evaluations = self.files["evaluations"]
        last = evaluations[-1] if evaluations else {}
        has_actors = config.get("learner.workload", "d4pg") == "d4pg" or bool(evaluations)
        task = config.get("task.name", "") if has_actors else config.get("learner.workload", "")
        waits = [_number(record.get("wait_share")) for record in self.files["learner"]]
        waits = [wait for wait in waits if wait is not None]
        rows = {"run": self.name, "task": task.strip('"'), "seed": config.get("run.seed", ""),
                "status": self.state.get("status", "?"), "starts": self.state.get("starts", ""),
                "updates": _short(self.newest("learner", "step")),
                "frames": _short(self.newest("learner", "frames")),
                "seconds": _short(self.newest("learner", "seconds")),
                "last return": _return(last), "best return": _return(best),
                # the launcher's word of the last seconds, and that of the whole run
                "limit now": self.report.get("limit", "")
                if self.state.get("status") == "running" else "",
                "limit": f"learner waited {100 * sum(waits) / len(waits):.0f}% of the time"
                if waits else ""}
        return rows

    def roles(self):
        rows = []
        for role in self.report.get("roles", []):
            starts = self.state.get(f"roles.{role['name']}", "{last: 1}")
            starts = "".join(c for c in starts if c.isdigit())
            rows.append({"role": role["name"], "state": role["state"], "host": role["host"],
                         "starts": starts, "failures": role["num_failures"],
                         "last failure": role["last_failure"], "waits for": role["reason"],
                         "numbers": ", ".join(f"{name} {_short(value)}"
                                              for name, value in role["numbers"].items())})
        return rows

    def videos(self):
        """(step, file) of the videos, the newest first."""
        files = sorted(self.folder.glob("videos/step-*.mp4"), reverse=True)
        return [(int(file.stem.split("-")[1]), file) for file in files]

    def changed(self):
        """Values that differ from the recipe: {key: (recipe, run)}."""
        if not self.recipe:
            return {}
        return _difference(self.recipe, self.config)


# Where a run lies, which every run has for itself.
OWN_KEYS = ("run.dir", "run.key_file", "run.name")


def _difference(first, second):
    return {key: (first.get(key, ""), second.get(key, ""))
            for key in sorted(first.keys() | second.keys())
            if key not in OWN_KEYS and first.get(key) != second.get(key)}


def _short(value):
    number = _number(value)
    if number is None:
        return ""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            return f"{number / (size if unit != 'k' else 1e3):.3g}{unit}"
    return f"{number:.4g}"


def _return(record):
    if not record:
        return ""
    return (f"{record['return']:.1f} ± {record.get('return_std', 0.0):.1f}, "
            f"update {record['step']}")


def find_runs(given):
    """The runs of folders: of a run itself, or of a sweep."""
    runs = []
    for name in given:
        folder = pathlib.Path(name)
        if (folder / "config.yaml").exists():
            runs.append((folder, folder.resolve().name))
            continue
        of_sweep = sorted(file.parent for file in folder.glob("*/config.yaml"))
        if not of_sweep:
            raise IoError(f"{name}: no folder of a run, which has a config.yaml, nor of a sweep")
        settings = {}
        try:
            with open(folder / "results.csv", newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    settings[row.get("run", "").zfill(3)] = row.get("settings", "")
        except FileNotFoundError:
            pass
        runs += [(run, " ".join(filter(None, (run.name, settings.get(run.name)))))
                 for run in of_sweep]
    return runs


def _table(rows, css=""):
    """A table of dictionaries with the same keys; empty columns are left out."""
    columns = [name for name in rows[0] if any(str(row[name]) for row in rows)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(row[name]))}</td>" for name in columns)
                   + "</tr>" for row in rows)
    return (f'<div class="wide"><table class="{css}"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def _facts(row):
    return ("<dl>" + "".join(f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(str(value))}</dd>"
                             "</div>" for name, value in row.items() if str(value)) + "</dl>")


def _configuration(run):
    parts = [f"<h3>{html.escape(run.name)}</h3>"]
    changed = run.changed()
    if changed:
        parts.append("<p>Differs from the recipe:</p>" + _table(
            [{"key": key, "recipe": old, "run": new} for key, (old, new) in changed.items()]))
    elif run.recipe:
        parts.append("<p>As the recipe has it.</p>")
    lines = "\n".join(f"{key}: {value}" for key, value in run.config.items())
    parts.append(f"<details><summary>All {len(run.config)} values</summary>"
                 f"<pre>{html.escape(lines)}</pre></details>")
    return "".join(parts)


def _videos(run, room):
    """The newest videos as long as there is room, and the number of bytes taken."""
    parts, taken = [], 0
    for step, file in run.videos():
        caption = f"{run.name}, update {step}"
        record = next((record for record in run.files["evaluations"] if record["step"] == step),
                      None)
        if record:
            caption += f", return {record['return']:.1f}"
        size = file.stat().st_size
        if taken + size > room:
            parts.append(f"<figure><figcaption>{html.escape(caption)}: {html.escape(str(file))}"
                         "</figcaption></figure>")
            continue
        taken += size
        data = base64.b64encode(file.read_bytes()).decode("ascii")
        parts.append(f'<figure><video controls loop muted playsinline preload="metadata" '
                     f'src="data:video/mp4;base64,{data}"></video>'
                     f"<figcaption>{html.escape(caption)}</figcaption></figure>")
    return "".join(parts), taken


def _body(runs):
    """The parts of the page without its curves."""
    parts = []
    summaries = [run.summary() for run in runs]
    if len(runs) == 1:
        parts.append(_facts(summaries[0]))
    else:
        # settings in which the runs differ
        keys = sorted({key for run in runs[1:] for key in _difference(runs[0].config, run.config)}
                      - {"run.seed"})
        for run, row in zip(runs, summaries):
            row.update({key: run.config.get(key, "") for key in keys[:12]})
        parts.append(_table(summaries, "summary"))
    for run in runs:
        if run.report.get("problem"):
            parts.append(f'<p class="problem">{html.escape(run.name)}: '
                         f"{html.escape(run.report['problem'])}</p>")
    parts.append('<section id="charts"></section>')
    room, films = MOST_VIDEO_BYTES, []
    for run in runs:
        film, taken = _videos(run, room)
        films.append(film)
        room -= taken
    if any(films):
        parts.append("<h2>Videos</h2><section class=\"films\">" + "".join(films) + "</section>")
    for run in runs:
        if run.files["evaluations"]:
            parts.append(f"<h2>Evaluations of {html.escape(run.name)}</h2>" + _table(
                [{"update": record["step"], "frames": _short(record.get("frames")),
                  "seconds": _short(record.get("seconds")), "return": _return(record).split(",")[0],
                  "episodes": record.get("episodes", "")}
                 for record in run.files["evaluations"][-50:][::-1]]))
    for run in runs:
        if run.roles():
            parts.append(f"<h2>Roles of {html.escape(run.name)}</h2>" + _table(run.roles()))
    parts.append("<h2>Configuration</h2>" + "".join(map(_configuration, runs)))
    return "".join(parts)


def _curves(runs):
    charts = []
    for title, unit, sources in CHARTS:
        lines = []
        for index, run in enumerate(runs):
            for kind, number, label in sources:
                curve = run.curve(kind, number)
                if curve:
                    curve |= {"run": index, "label": label,
                              "name": " ".join(filter(None, (run.name if len(runs) > 1 else "",
                                                             label))) or title}
                    lines.append(curve)
        if lines:
            charts.append({"title": title, "unit": unit, "lines": lines})
    return charts


def _embedded(value):
    """JSON that may stand in an element `script`."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _plotly():
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise Error("report: want the package plotly, which draws the curves; hint: "
                    "pip install plotly") from None
    return get_plotlyjs()


def content(given):
    """What changes while runs go on: {"body": HTML, "charts": [...]}."""
    runs = [RunFiles(folder, name) for folder, name in find_runs(given)]
    return {"body": _body(runs), "charts": _curves(runs), "title": ", ".join(
        run.name for run in runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")}


def page(given, refresh_s=0):
    """The whole page."""
    now = content(given)
    style = (pathlib.Path(__file__).parent / "_report.css").read_text(encoding="utf-8")
    script = (pathlib.Path(__file__).parent / "_report.js").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{html.escape(now['title'])}</title><style>{style}</style></head><body>
<header><h1>{html.escape(now['title'])}</h1>
<nav id="axes">over <button data-axis="frames">frames</button>
<button data-axis="seconds">seconds</button>
<button data-axis="updates">updates</button></nav></header>
<main id="body">{now['body']}</main>
<script type="application/json" id="data">{_embedded(now['charts'])}</script>
<script>{_plotly()}</script>
<script>{script}
show({refresh_s});</script></body></html>
"""


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        token = urllib.parse.parse_qs(url.query).get("token", [""])[0]
        if not self.server.admits(token, self.headers.get("Host", "")):
            self._send(403, "text/plain", "the address of this page has a token\n")
        elif url.path == "/":
            self._answer("text/html", lambda: page(self.server.given, REFRESH_S))
        elif url.path == "/now":
            self._answer("application/json", lambda: json.dumps(content(self.server.given)))
        else:
            self._send(404, "text/plain", "no such page\n")

    def _answer(self, kind, make):
        try:
            self._send(200, kind, make())
        except Error as error:
            self._send(500, "text/plain", f"{error}\n")

    def _send(self, code, kind, text):
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Serves the page of runs at "HOST:PORT"; beyond loopback to those who have its token."""

    daemon_threads = True

    def __init__(self, address, given):
        host, colon, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            number, ip = int(port), ipaddress.ip_address(host)
        except ValueError:
            number = -1
        if not colon or not 0 <= number <= 65535:
            raise ConfigError(f"--serve {address}: want a numeric address and a port, such as "
                              "127.0.0.1:8080; port 0 takes a free one")
        self.given = given
        self.is_open = ip.is_loopback
        self.token = "" if self.is_open else secrets.token_urlsafe(24)
        self.address_family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET
        try:
            super().__init__((host, number), _Handler)
        except OSError as error:
            raise IoError(f"--serve {address}: {error.strerror}") from None
        shown = f"[{host}]" if ip.version == 6 else host
        self.url = f"http://{shown}:{self.server_address[1]}/" + (
            f"?token={self.token}" if self.token else "")

    def admits(self, token, host):
        if not self.is_open:
            return hmac.compare_digest(token.encode(), self.token.encode())
        # a name that another page has pointed to loopback
        name = urllib.parse.urlsplit(f"//{host}").hostname or ""
        try:
            return name == "localhost" or ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def main(arguments):
    parser = argparse.ArgumentParser(prog="fleet --report", description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run or of a sweep")
    parser.add_argument("--to", metavar="FILE", help="the file; default: report.html in the folder "
                        "of the only run, or in this one")
    parser.add_argument("--serve", metavar="ADDRESS", nargs="?", const="127.0.0.1:0",
                        help="serve the page at HOST:PORT instead and renew it while runs go on; "
                        "beyond loopback its address has a token (default: %(const)s)")
    options = parser.parse_args(arguments)
    try:
        if options.serve is not None:
            find_runs(options.runs)
            _plotly()
            with Server(options.serve, options.runs) as server:
                print(f"serving the report at {server.url}", flush=True)
                server.serve_forever()
        file = pathlib.Path(options.to or (pathlib.Path(options.runs[0]) if len(options.runs) == 1
                                           else pathlib.Path()) / "report.html")
        text = page(options.runs)
        new = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(file)
        except OSError as error:
            raise IoError(f"--to {file}: {error.strerror}") from None
        print(f"wrote {file}")
    except KeyboardInterrupt:
        pass
    except Error as error:
        print(f"fleet: {error}", file=sys.stderr)
        return 1
    return 0
