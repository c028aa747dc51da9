"""The page of fleet --report, on run folders that the tests write, and in a browser where there is
one."""

import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from replicant import _report
from replicant.errors import ConfigError, Error, IoError

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which(
    "google-chrome")
plotly = pytest.importorskip("plotly", reason="plotly draws the curves of a report")


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def make_run(folder, seed=1, scale=1.0, rate="1e-3"):
    """A run of 40 points whose return rises to 800 * scale."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        f"run:\n  seed: {seed}\n  dir: {folder}\ntask:\n  name: cartpole-swingup\n"
        f"learner:\n  workload: d4pg\n  rate: {rate}\n  sizes: [8, 8]\n")
    (folder / "recipe.yaml").write_text(
        "run:\n  seed: 1\n  dir: \"\"\ntask:\n  name: cartpole-swingup\n"
        "learner:\n  workload: d4pg\n  rate: 1e-4\n  sizes: [8, 8]\n")
    (folder / "state.yaml").write_text(
        "status: complete\nstarts: 2\nroles:\n  actor-0: {last: 3}\n  learner-0: {last: 2}\n")
    (folder / "status.json").write_text(json.dumps({
        "status": "complete", "limit": "none", "problem": "", "hosts": [], "roles": [
            {"name": "actor-0", "state": "ended", "host": "node1", "num_failures": 2, "reason": "",
             "last_failure": "signal 9 (Killed) <b>", "numbers": {"return": 12.5}}]}))
    (folder / "learner.jsonl").write_text(lines(
        {"step": 100 * i, "seconds": 2.0 * i, "frames": 1000.0 * i, "critic_loss": 3.0 / (i + 1),
         "policy_loss": -1.0 * i, "steps_per_s": 50.0, "wait_share": 0.25} for i in range(40)))
    (folder / "fleet.jsonl").write_text(lines(
        {"step": 100 * i, "frames": 1000.0 * i, "actors/return": 15.0 * i * scale}
        for i in range(40)) + '{"step": 4000, "frames"')
    (folder / "evaluations.jsonl").write_text(lines(
        {"step": 1000 * i, "seconds": 20.0 * i, "frames": 10000.0 * i, "return": 200.0 * i * scale,
         "return_std": 3.0, "episodes": 5} for i in range(5)))
    (folder / "videos").mkdir()
    (folder / "videos" / "step-000000004000.mp4").write_bytes(b"not really a film")
    return folder


def test_a_run_is_one_file_with_its_numbers(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    assert _report.main([str(run)]) == 0
    assert capsys.readouterr().out == f"wrote {run}/report.html\n"
    text = (run / "report.html").read_text()
    # nothing is loaded from anywhere
    own = text.replace(_report._plotly(), "")
    assert not re.search(r"""(src|href)=["'](?!data:)""", own) and "http" not in own
    for part in ["cartpole-swingup", "800.0 ± 3.0, update 4000", "learner waited 25% of the time",
                 "signal 9 (Killed) &lt;b&gt;", "node1", "data:video/mp4;base64,"]:
        assert part in own, part
    # what differs from the recipe, and not where the run lies
    assert re.search(r"<td>learner.rate</td><td>1e-4</td><td>1e-3</td>", own)
    assert "<td>run.dir</td>" not in own and "<td>learner.sizes</td>" not in own
    charts = json.loads(re.search(r'id="data">(.*?)</script>', own).group(1))
    assert [chart["title"] for chart in charts][:3] == ["Return", "Critic loss", "Policy loss"]
    evaluation, training = charts[0]["lines"]
    assert evaluation["y"] == [0.0, 200.0, 400.0, 600.0, 800.0]
    assert evaluation["frames"][-1] == 40000.0 and evaluation["spread"] == [3.0] * 5
    # seconds of the learner at the same step; the torn last line is none
    assert training["seconds"][-1] == 78.0 and len(training["y"]) == 40


def test_runs_and_a_sweep_stand_side_by_side(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep = tmp_path / "sweep"
    for index, rate in enumerate(["1e-3", "1e-2"]):
        make_run(sweep / f"00{index}", seed=index, scale=1.0 - 0.5 * index, rate=rate)
    assert _report.main([str(sweep)]) == 0
    text = (sweep / "report.html").read_text()
    # the setting in which they differ is a column
    assert "<th>learner.rate</th>" in text and "<th>run.seed</th>" not in text
    assert "800.0 ± 3.0" in text and "400.0 ± 3.0" in text
    assert _report.main([str(sweep / "000"), str(sweep / "001")]) == 0
    assert (tmp_path / "report.html").exists()


def test_curves_keep_their_ends_and_leave_out_what_is_no_number(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "learner.jsonl").write_text(lines(
        {"step": i, "seconds": i, "frames": i, "critic_loss": "NaN" if i == 3 else i}
        for i in range(10001)))
    (chart,) = [chart for chart in _report.content([run])["charts"]
                if chart["title"] == "Critic loss"]
    values = chart["lines"][0]["y"]
    assert len(values) <= _report.MOST_POINTS + 1 and values[0] == 0 and values[-1] == 10000
    assert all(isinstance(value, float) for value in values)


def test_mistakes_are_named(tmp_path, capsys):
    assert _report.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"fleet: {tmp_path}: no folder of a run, which has a config.yaml, nor of a sweep\n")
    run = make_run(tmp_path / "run")
    assert _report.main([str(run), "--to", str(tmp_path / "no" / "a.html")]) == 1
    assert "No such file or directory" in capsys.readouterr().err
    for address in ["8080", "host:80", "127.0.0.1:x", "127.0.0.1:70000"]:
        with pytest.raises(ConfigError, match=re.escape(f"--serve {address}: want a numeric")):
            _report.Server(address, [run])


def get(url, headers=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}),
                                    timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def serve():
    servers = []

    def start(address, run):
        server = _report.Server(address, [str(run)])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_served_page_is_renewed(tmp_path, serve, monkeypatch):
    # a proxy of the environment has nothing to do with it
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    run = make_run(tmp_path / "run")
    url = serve("127.0.0.1:0", run).url
    code, text = get(url)
    assert code == 200 and "show(5);" in text
    with open(run / "evaluations.jsonl", "a") as file:
        file.write(lines([{"step": 5000, "seconds": 100, "frames": 5e4, "return": 987.0,
                           "return_std": 1.0, "episodes": 5}]))
    now = json.loads(get(url + "now")[1])
    assert "987.0 ± 1.0" in now["body"] and now["charts"][0]["lines"][0]["y"][-1] == 987.0
    assert get(url + "etc/passwd")[0] == 404
    # a page of another site, whose name points to loopback
    assert get(url, {"Host": "evil.example"})[0] == 403


def test_beyond_loopback_a_token_is_asked_for(tmp_path, serve, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = serve("0.0.0.0:0", make_run(tmp_path / "run"))
    port = server.server_address[1]
    assert server.url.startswith(f"http://0.0.0.0:{port}/?token=") and len(server.token) >= 32
    local = f"http://127.0.0.1:{port}/"
    assert get(local)[0] == 403 and get(local + "now?token=x")[0] == 403
    assert get(f"{local}?token={server.token}")[0] == 200


# Answers what a reader would see: text cut off, charts that are empty.
PROBE = """
const page = frame.contentDocument, root = page.documentElement;
const charts = [...page.querySelectorAll(".chart")];
const result = { width: root.clientWidth, scroll: root.scrollWidth, charts: charts.length,
  points: charts.map((one) => one.querySelectorAll(".scatterlayer path.js-line").length),
  cut: charts.filter((one) => one.querySelector(".main-svg").clientWidth > one.clientWidth).length,
  text: page.body.innerText.includes("800.0 ± 3.0"),
  back: getComputedStyle(page.body).backgroundColor,
  ink: getComputedStyle(charts[0].querySelector(".xtick text")).fill };
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [375, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it(tmp_path, width, scheme):
    run = make_run(tmp_path / "run")
    # a window has a least width, a frame has none
    outer = tmp_path / "outer.html"
    outer.write_text(
        f'<meta charset="utf-8"><meta name="color-scheme" content="{scheme}">'
        f'<iframe id="frame" style="width:{width}px;height:900px;border:0;color-scheme:{scheme}" '
        f'srcdoc="{html.escape(_report.page([run]))}"></iframe><pre id="result"></pre><script>'
        "const frame = document.getElementById('frame');"
        "frame.onload = () => setTimeout(() => {" + PROBE +
        "document.getElementById('result').textContent = 'RESULT' + JSON.stringify(result) + 'END';"
        "}, 2000);</script>")
    blink = "preferredColorScheme=" + ("0" if scheme == "dark" else "1")
    result = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--window-size=1600,1000",
         f"--user-data-dir={tmp_path / 'profile'}", f"--blink-settings={blink}",
         "--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom", outer.as_uri()],
        capture_output=True, text=True, timeout=300)
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    found = re.search(r'id="result">RESULT(.*?)END', result.stdout)
    assert found, result.stdout[-2000:] + result.stderr[-2000:]
    seen = json.loads(html.unescape(found.group(1)))
    assert seen["width"] == width and seen["scroll"] == width, "no part is wider than the page"
    assert seen["charts"] == 5 and min(seen["points"]) >= 1 and seen["cut"] == 0
    assert seen["text"]
    back, ink = (sum(map(int, re.findall(r"\d+", seen[name])[:3])) for name in ("back", "ink"))
    assert (back < 150 < ink) if scheme == "dark" else (ink < 300 < back)


def test_without_plotly_the_hint_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(Error, match="pip install plotly"):
        _report._plotly()


def test_the_package_has_the_files_of_the_page():
    for name in ("_report.css", "_report.js"):
        assert (pathlib.Path(_report.__file__).parent / name).exists()
    with pytest.raises(IoError):
        _report.find_runs(["/no/such/folder"])
