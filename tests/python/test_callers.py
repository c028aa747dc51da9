"""Who calls the package and how: what train() is given, where pip has put the package, which kind
of program asks for a training, copies of objects and their use after close()."""

import copy
import decimal
import enum
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import replicant
from replicant import _libraries, _make_env, _process, _train, envs, errors, replay

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = ROOT / "configs/cartpole_swingup_state.yaml"
SHORT = {
    "learner.limits.max_steps": 40,
    "agent.networks.policy_hidden_sizes": [8],
    "agent.networks.critic_hidden_sizes": [8],
    "evaluation.episodes": 1,
}
# what YAML would read as a comment, a map, a list, a number, no value or an error
TRICKY = ["exp #1", "a: b", "x ", " x", "null", "~", "Null", "[8, 8]", "{a: 1}", "{", '"q"', "'",
          "*a", "&a", "!t", "| x", "- x", "#", ":", "yes", "010", "a\\x41", "a\tb", "a\nb",
          "a\x01b", "a\x7fb", "$HOME", "a=b", "ä", "\ufeffx", "\u2028", "\x85", "😀", '"\x01']


def render(folder, config, settings):
    """The configuration that the fleet makes of a file and settings, without a training."""
    command = [*_process.python("replicant"), "fleet", "--config", config, "--render", "slurm",
               "--to", folder]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, timeout=120, env=_process.environment())
    return (folder / "config.yaml").read_text(encoding="utf-8")


def resolved(tmp_path, settings):
    """The configuration that the fleet makes of Python's settings."""
    return render(tmp_path / "rendered", CONFIG,
                  [f"{key}={_train.yaml_of(value, key)}" for key, value in settings.items()])


def line_of(text, key):
    """The value of a key, which is the last part of its line."""
    return next(line.partition(": ")[2] for line in text.split("\n")
                if line.strip().startswith(key + ":"))


# --- values ---


class Kind(enum.Enum):
    FILE = pathlib.Path("/a: b/c #1")
    MANY = np.int64(3)


class Name(enum.Enum):
    DEFAULT = "default"


# an element of a list of text in a resolved configuration
OPTION = re.compile(r'"(?:[^"\\]|\\.)*"|[^,\[\] ][^,]*')


def test_values_of_other_libraries_are_plain_values(tmp_path):
    text = resolved(tmp_path, {
        "learner.batch_size": np.int64(64),
        "agent.policy_optimizer.learning_rate": np.float32(0.5),
        "task.pixels.enabled": np.bool_(False),
        "agent.networks.policy_hidden_sizes": np.array([8, 16]),
        "agent.networks.critic_hidden_sizes": (np.int32(4), Kind.MANY),
        "learner.limits.max_seconds": decimal.Decimal("12.5"),
        "run.key_file": Kind.FILE,
    })
    assert line_of(text, "batch_size") == "64"
    assert "policy_hidden_sizes: [8, 16]" in text and "critic_hidden_sizes: [4, 3]" in text
    assert line_of(text, "max_seconds") == "12.5"
    assert line_of(text, "key_file") == '"/a: b/c #1"'


def test_values_within_lists_and_dictionaries_are_as_given(tmp_path):
    notes = [f"--comment={text}" for text in TRICKY if "\n" not in text]
    text = resolved(tmp_path, {
        "cluster.slurm": {"options": notes},
        "replay.tables": {Name.DEFAULT: {"max_size": np.int64(5000), "discount": np.float32(0.5)}},
        "agent.policy_optimizer.learning_rate": 1e-05,
        "agent.distribution": {"v_min": decimal.Decimal("-1e5"), "v_max": np.array(2.5)},
    })
    options = line_of(text[text.index("  slurm:"):], "options")
    assert [eval(part) if part.startswith('"') else part
            for part in OPTION.findall(options[1:-1])] == notes
    assert line_of(text, "max_size") == "5000" and line_of(text, "discount") == "0.5"
    policy = text[text.index("  policy_optimizer:"):]
    assert float(line_of(policy, "learning_rate")) == 1e-05
    assert float(line_of(text, "v_min")) == -1e5 and line_of(text, "v_max") == "2.5"


def test_the_manuals_values_are_the_same_by_every_door(tmp_path):
    text = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    table = text[text.index("| key | in a file |"):].split("\n\n")[0].splitlines()[2:]
    rows = [re.findall(r"\| `(.*?)` (?=\|)", line) for line in table]
    assert len(rows) == 11 and all(len(row) == 4 for row in rows)
    # a file of flow maps: one line for each key
    file = tmp_path / "run.yaml"
    lines = [f"base: {CONFIG}"]
    for section in dict.fromkeys(row[0].split(".")[0] for row in rows):
        lines.append(f"{section}:")
        for key, value, *_ in rows:
            if key.startswith(section + "."):
                parts = key.split(".")[1:]
                lines.append("  " + "{".join(f"{part}: " for part in parts) + value
                             + "}" * (len(parts) - 1))
    file.write_text("\n".join(lines), encoding="utf-8")
    by_file = render(tmp_path / "file", file, [])
    by_set = render(tmp_path / "set", CONFIG, [f"{key}={value}" for key, _, value, _ in rows])
    names = {"np": np, "pathlib": pathlib}
    by_python = resolved(tmp_path, {key: eval(value, names) for key, *_, value in rows})
    assert by_file == by_set == by_python
    assert line_of(by_python, "key_file") == '"keys #1: "'
    assert line_of(by_python, "max_steps") == "5" and "sizes: [8, 16]" in by_python


def test_what_is_no_value_is_an_error_with_its_key(tmp_path):
    with pytest.raises(errors.ConfigError, match="run.name: got object <object"):
        _train.yaml_of(object(), "run.name")
    for value in (float("inf"), np.array([1, np.nan]), None):
        run = replicant.train(CONFIG, {"agent.policy_optimizer.learning_rate": value},
                              folder=tmp_path / "run")
        with pytest.raises(errors.ConfigError, match="agent.policy_optimizer.learning_rate: "):
            run.wait(timeout=120)


def test_an_argument_is_not_overridden(tmp_path, monkeypatch):
    monkeypatch.setattr(_train, "start_fleet", lambda command, folder, settings, name: settings)
    make = f"{ROOT}/examples/python/own_environment.py:Pole"
    # neither by the task that names the recipe nor by a section
    for config in (CONFIG, "finger-spin"):
        settings = list(replicant.train(config, {"task": {"name": "cheetah-run"}}, make_env=make,
                                        folder=tmp_path).items())
        assert settings[-2:] == [("run.dir", str(tmp_path)), ("task.name", "python-environment")]
    with pytest.raises(errors.ConfigError, match="task.name: got 'cheetah-run'; leave it out, the "
                       "argument make_env says it"):
        replicant.train(CONFIG, {"task.name": "cheetah-run"}, make_env=make, folder=tmp_path)
    with pytest.raises(errors.ConfigError, match="run.dir: got 'x'; leave it out, .* folder says it"):
        replicant.train(CONFIG, {"run.dir": "x"}, folder=tmp_path)


@pytest.mark.parametrize("text", TRICKY)
def test_text_reaches_the_fleet_as_it_is(tmp_path, text):
    found = line_of(resolved(tmp_path, {"run.key_file": text}), "key_file")
    # the quotes of base/config/scalar.cc are JSON's but for \x01
    is_quoted = found.startswith('"')
    assert (eval(found) if is_quoted else found) == text


def test_text_of_every_kind_names_the_folder(tmp_path):
    folder = tmp_path / "exp #1: [a] 'b' %j, c "
    run = replicant.train(CONFIG, SHORT, folder=folder).wait(timeout=280)
    assert run.folder == folder and (folder / "config.yaml").exists()
    assert run.policy().step == 40
    assert len(run.curves()["step"]) > 0
    # no neighbour, such as "exp"
    assert sorted(path.name for path in tmp_path.iterdir()) == [folder.name, folder.name + ".log"]
    watching = pickle.loads(pickle.dumps(run))
    assert watching.folder == folder and not watching.is_running()
    policy = run.policy()
    again = copy.deepcopy(policy)
    observation = np.ones(5)
    np.testing.assert_array_equal(again.act(observation), policy.act(observation))
    assert again.checkpoint == policy.checkpoint


def test_a_name_of_a_text_key_is_not_a_value_of_yaml(tmp_path):
    for name in ("null", "[a]"):
        run = replicant.train(CONFIG, {**SHORT, "learner.no_such_key": 1}, folder=tmp_path / name)
        with pytest.raises(errors.ConfigError, match="no_such_key: unknown key"):
            run.wait(timeout=120)
        assert (tmp_path / f"{name}.log").exists()


# --- programs ---


ENVIRONMENT = textwrap.dedent("""
    import gymnasium, numpy

    class Line(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Box(-1, 1, (1,))

        def reset(self, *, seed=None, options=None):
            self.count = 0
            return numpy.zeros(2), {}

        def step(self, action):
            self.count += 1
            return numpy.full(2, self.count / 5), 1 - abs(float(action[0])), False, (
                self.count == 5), {}

    def make():
        return Line()
    """)
TRAIN = textwrap.dedent(f"""
    import sys, replicant

    def main():
        run = replicant.train({str(CONFIG)!r}, {SHORT!r}, folder=sys.argv[1],
                              make_env=globals().get("name", make))
        print(run.wait(timeout=280).policy().step)
    """)
GUARDED = TRAIN + 'if __name__ == "__main__":\n    main()\n'


def program(command, tmp_path, **options):
    return subprocess.run([*command, str(tmp_path / "run")], cwd=tmp_path, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=280,
                          env=_process.environment(), **options)


def test_a_module_of_a_package_is_a_program(tmp_path):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "line.py").write_text(ENVIRONMENT)
    (package / "train.py").write_text("from .line import Line, make as make_line\n"
                                      "def make():\n    return make_line()\n" + GUARDED)
    found = program([sys.executable, "-m", "mine.train"], tmp_path)
    assert found.stdout == "40\n", found.stderr


def test_a_script_without_py_in_its_name_and_a_child_of_spawn(tmp_path):
    (tmp_path / "script").write_text(ENVIRONMENT + TRAIN + textwrap.dedent("""
        import multiprocessing

        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=main)
            child.start()
            child.join()
            sys.exit(child.exitcode)
        """))
    found = program([sys.executable, "script"], tmp_path)
    assert found.stdout == "40\n", found.stderr


def test_a_script_without_a_guard_says_so_and_runs_once(tmp_path):
    script = tmp_path / "script.py"
    for start in ("main()", "for i in range(1):\n    main()",
                  'name = __file__ + ":make"\nmain()', 'name = "script.py:make"\nmain()'):
        script.write_text(ENVIRONMENT + TRAIN + "open('ran', 'a').write('x')\n" + start)
        found = program([sys.executable, script], tmp_path)
        last = found.stderr.splitlines()[-1]
        line = script.read_text().count("\n") + 1
        assert found.returncode == 1
        assert last.endswith(
            f"script.py:{line}: starts a training whenever the file is imported, as every process "
            "of a training imports it for make_env; hint: put it below 'if __name__ == "
            '"__main__":\''), last
        assert (tmp_path / "ran").read_text() == "x"
        (tmp_path / "ran").unlink()
        assert not (tmp_path / "run").exists()


def test_a_guard_has_many_forms(tmp_path):
    script = tmp_path / "script.py"

    def is_guarded(text):
        script.write_text(text)
        return _make_env._is_guarded(str(script), text.count("\n", 0, text.index("go()")) + 1)

    assert is_guarded('if __name__ == "__main__":\n    go()')
    assert is_guarded('if "__main__" == __name__: go()')
    assert is_guarded('try:\n  if __name__ == "__main__":\n    if True:\n      go()\nfinally:\n  0')
    assert is_guarded('if __name__ != "__main__":\n    raise SystemExit\ngo()')
    assert not is_guarded('if __name__ == "__main__":\n    pass\ngo()')
    assert not is_guarded('if True:\n    go()')


def test_a_training_does_not_start_while_a_role_imports_the_file(tmp_path):
    file = tmp_path / "starts.py"
    file.write_text(f"import replicant\nreplicant.train({str(CONFIG)!r}, folder='x')\n"
                    "def make(): pass\n")
    with pytest.raises(errors.Error, match="a training starts while the file is imported"):
        _make_env.find(f"{file}:make")


def test_a_notebook_names_a_function_of_a_file():
    ended = subprocess.run(
        [sys.executable, "-c", "from replicant import _make_env\n"
         f"print(_make_env.name_of({f'{ROOT}/examples/python/own_environment.py:Pole'!r}))"],
        text=True, capture_output=True, timeout=60, check=False, env=_process.environment())
    assert (ended.stdout, ended.stderr) == (f"{ROOT}/examples/python/own_environment.py:Pole\n", "")


@pytest.mark.parametrize("kind", ["stdin", "notebook", "notebook with a file", "-c"])
def test_a_function_without_a_file_is_refused(tmp_path, kind):
    text = ENVIRONMENT + TRAIN
    if kind == "stdin":
        found = program([sys.executable, "-"], tmp_path, input=text + "main()\n")
    elif kind == "-c":
        found = program([sys.executable, "-c", text + "main()\n"], tmp_path)
    else:
        (tmp_path / "book.ipynb").write_text("{}")
        file = f"__file__ = {str(tmp_path / 'book.ipynb')!r}\n" if "file" in kind else ""
        found = program([sys.executable, "-c", f"{file}{text}main()\n"], tmp_path)
    assert found.stderr.splitlines()[-1].endswith(
        "make_env: a function of a notebook, of an interactive session or of standard input cannot "
        "be imported by other processes; hint: put it into a file")


def test_a_relative_name_is_found_from_another_folder(tmp_path, monkeypatch):
    (tmp_path / "body.py").write_text("def make():\n    return 7\n")
    monkeypatch.chdir(tmp_path)
    name = _make_env.name_of("body.py:make")
    monkeypatch.chdir("/")
    assert _make_env.find(name)() == 7


# --- installations ---


@pytest.fixture(scope="module")
def other_python(tmp_path_factory):
    """An interpreter that has the package in another folder only, as after pip install --prefix,
    and the environment variables that add it."""
    prefix = tmp_path_factory.mktemp("target")
    folder = prefix / "lib/python3/site-packages"
    folder.mkdir(parents=True)
    package = pathlib.Path(replicant.__file__).parent
    # libraries of other packages lie in lib
    for library in package.parents[2].glob("*.so*"):
        (prefix / "lib" / library.name).symlink_to(library)
    for entry in package.parent.iterdir():
        if entry != package:
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(package, folder / package.name)
    base = f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    return base, {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}


def test_another_installation_trains(other_python, tmp_path):
    python, environment = other_python
    environment = dict(environment)
    # the script that pip writes, in a folder where no interpreter lies
    script = tmp_path / "replicant"
    script.write_text(f"#!{python}\nimport sys\nfrom replicant.__main__ import main\n"
                      "sys.exit(main())\n")
    script.chmod(0o755)
    for command in ([script], [python, "-m", "replicant"]):
        found = subprocess.run([*command, "fleet", "--version"], env=environment, timeout=120,
                               stdout=subprocess.PIPE, text=True, check=True)
        assert found.stdout.startswith("fleet ")
    # sys.path alone has it here
    text = f"import sys\nsys.path.append({environment.pop('PYTHONPATH')!r})\n" + textwrap.dedent(f"""
        import replicant
        run = replicant.train({str(CONFIG)!r}, {SHORT!r}, folder={str(tmp_path / "run")!r})
        print(run.wait(timeout=280).policy().step, replicant.__file__)
        from replicant import replay
        with replay.Replay.start(replay.Signature(((2,), float), ((1,), float)),
                                 process="child") as service:
            print(sorted(service.status()))
        """)
    found = subprocess.run([python, "-c", text], env=environment, timeout=280, text=True,
                           stdout=subprocess.PIPE, check=True)
    assert found.stdout.startswith("40 ") and "target" in found.stdout


def test_a_library_that_pip_left_out_is_named(other_python, tmp_path):
    python, environment = other_python
    # pip install --target leaves out lib, where the library lies
    folder = tmp_path / "target"
    folder.mkdir()
    for entry in pathlib.Path(environment["PYTHONPATH"]).iterdir():
        (folder / entry.name).symlink_to(entry)
    found = subprocess.run([python, "-m", "replicant", "fleet", "--version"], timeout=120, text=True,
                           env={**environment, "PYTHONPATH": str(folder)}, stderr=subprocess.PIPE,
                           check=False)
    assert found.returncode == 1
    assert found.stderr.startswith("fleet: libdnnl.so.3 was not found; pip's --target leaves it "
                                   "out; hint: ")


def test_a_library_that_a_minimal_system_lacks_is_named(monkeypatch):
    def fail(name):
        raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(_libraries.ctypes, "CDLL", fail)
    with pytest.raises(ImportError, match="^oneDNN cannot be loaded: libgomp.so.1: cannot open "
                       "shared object file: No such file or directory; hint: install the system's "
                       "package libgomp1$"):
        _libraries.load_onednn()


# --- copies and closed objects ---


MAKERS = {
    "Env": lambda: envs.make("cartpole-swingup"),
    "VectorEnv": lambda: envs.make_vec("cartpole-swingup", 2),
    "DmEnvironment": lambda: envs.load("cartpole-swingup"),
    "DmVectorEnvironment": lambda: envs.load("cartpole-swingup", 2),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_copy_of_an_environment_is_refused(name):
    with_copy = MAKERS[name]()
    for make_copy in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(errors.Error, match=f"{name}: cannot be copied or pickled; hint: make"):
            make_copy(with_copy)
    with_copy.reset()


@pytest.mark.parametrize("name", MAKERS)
def test_a_closed_environment_says_so(name):
    env = MAKERS[name]()
    env.reset()
    action = np.zeros(env.action_space.shape if "Env" in name[-3:] else (1,) if name[2:5] == "Env"
                      else (2, 1))
    env.close()
    env.close()
    for use in (env.reset, lambda: env.step(action)):
        with pytest.raises(errors.Error, match="the environment: closed; hint: make another"):
            use()


def test_clients_of_a_replay_are_not_copied_and_end():
    signature = replay.Signature(((2,), float), ((1,), float))
    with replay.Replay.start(signature) as service:
        writer, reader = service.writer(), service.reader(batch_size=1)
        for client in (writer, reader, service):
            for make_copy in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(errors.Error, match="cannot be copied or pickled; hint: connect"):
                    make_copy(client)
        writer.begin()
        assert writer.append([0, 0], [0], 0) and writer.end([0, 0]) and writer.flush(60)
        batch = reader.sample(timeout=60)
        writer.close()
        reader.close()
        writer.close()
        for use in (writer.begin, lambda: writer.append([0, 0], [0], 0), lambda: writer.end([0, 0]),
                    writer.flush):
            with pytest.raises(errors.CommError, match="^writer: already closed$"):
                use()
        for use in (lambda: reader.sample(timeout=1), lambda: reader.checkpoint(1),
                    lambda: reader.update_priorities(batch, [1.0])):
            with pytest.raises(errors.CommError, match="^reader: already closed$"):
                use()


# --- models as text ---


TRIANGLE = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
MODEL = """<mujoco>
  <include file="common.xml"/>
  <asset><mesh name="m" file="meshes/m.obj"/></asset>
  <worldbody><body><joint name="hinge"/><geom type="mesh" mesh="m"/></body></worldbody>
  <actuator><motor joint="hinge" ctrlrange="-1 1"/></actuator>
</mujoco>"""


@pytest.fixture
def model_folder(tmp_path, monkeypatch):
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes/m.obj").write_text(TRIANGLE)
    (tmp_path / "common.xml").write_text(
        '<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/></worldbody></mujoco>')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def positions(mjcf):
    """What a task of the model observes of the parts that lie in other files."""
    task = envs.Task(name="text", mjcf=mjcf, reward=lambda physics: 0.0, observation=lambda physics: {
        "floor": physics.geom_position("floor")})
    env = envs.make(task)
    return env.reset()[0]


def test_files_of_a_text_lie_in_the_working_folder(model_folder):
    for text in (MODEL, "\ufeff" + MODEL, MODEL.encode(), b"\xef\xbb\xbf" + MODEL.encode(),
                 "\n" + MODEL):
        np.testing.assert_array_equal(positions(text), [0, 0, 0])
    os.chdir("/")
    with pytest.raises(errors.IoError, match="MJCF: the text of task text: .*common.xml"):
        positions(MODEL)


def test_a_path_of_a_model_may_begin_at_home(model_folder, monkeypatch):
    (model_folder / "robot.xml").write_text(MODEL)
    monkeypatch.setenv("HOME", str(model_folder))
    monkeypatch.chdir("/")
    for path in ("~/robot.xml", model_folder / "robot.xml", os.fsencode(model_folder / "robot.xml")):
        np.testing.assert_array_equal(positions(path), [0, 0, 0])


@pytest.mark.parametrize("given, message", [
    ("", "mjcf: empty; want the path of an MJCF file, or its text"),
    ("  \n", "mjcf: empty"), (3, "mjcf: got 3, want the path of an MJCF file, or its text"),
    (None, "mjcf: got None"), (b"<\xff>", "mjcf: the text is not UTF-8"),
    ("<mujoco/>".encode("utf-16"), "mjcf: got zeros, as UTF-16 and archives hold; want the text "
     "of a model in UTF-8, or the path of a file"),
    ("<mujoco>\0</mujoco>", "mjcf: got zeros"), ("/tmp/a\0.xml", "mjcf: got zeros"),
    (b"/tmp/\xff.xml", "mjcf: got '/tmp/.*which UTF-8 cannot hold"),
    ("/nowhere/robot.xml", "MJCF: /nowhere/robot.xml: no such file")])
def test_what_is_no_model_is_refused(given, message):
    with pytest.raises(errors.Error, match=message):
        positions(given)
    with pytest.raises(errors.InvalidArgument, match="got the text of a model, want the path"):
        envs.make("cartpole-swingup", mjcf="<mujoco/>")


# --- MuJoCo ---


@pytest.fixture(params=["none", "damaged", "4.0.0"])
def foreign_mujoco(request, tmp_path):
    """An environment without a MuJoCo that the package supports, and the reason that it gives."""
    folder = tmp_path / "path/mujoco"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('not whole')\n")
    if request.param == "none":
        (tmp_path / "path/sitecustomize.py").write_text(textwrap.dedent("""
            import sys

            class Hide:
                def find_spec(self, name, path=None, target=None):
                    if name == "mujoco":
                        raise ModuleNotFoundError(name)

            sys.meta_path.insert(0, Hide())
            """))
        shutil.rmtree(folder)
        return tmp_path / "path", "MuJoCo 3.17.0 is not installed; .* hint: pip install"
    (folder / "libmujoco.so.4.0.0").write_text("")
    if request.param == "damaged":
        return tmp_path / "path", "lacks files: pip removes them .* a new environment"
    (folder / "_structs.abi.so").write_text("")
    return tmp_path / "path", "MuJoCo 4.0.0 is installed .* supports 3.17.0; .* another environment"


def test_all_but_the_suite_works_without_mujoco(foreign_mujoco, tmp_path):
    path, message = foreign_mujoco
    environment = _process.environment()
    environment["PYTHONPATH"] = f"{path}{os.pathsep}{environment['PYTHONPATH']}"
    (tmp_path / "line.py").write_text(ENVIRONMENT)
    text = textwrap.dedent(f"""
        import re, numpy, line, replicant
        from replicant import data, replay
        with replay.Replay.start(replay.Signature(((2,), float), ((1,), float))) as service:
            service.status()
        run = replicant.train({str(CONFIG)!r}, {SHORT!r}, folder={str(tmp_path / "run")!r},
                              make_env=line.make)
        policy = run.wait(timeout=280).policy()
        print(policy.step, policy.act(numpy.zeros(2)).shape)
        print(data.export(run.folder, {str(tmp_path / "exported")!r}, "minari", episodes=1,
                          make_env=line.make))
        try:
            from replicant import envs
        except ImportError as error:
            print(re.search({message!r}, str(error)) is not None or error)
        other = replicant.train({str(CONFIG)!r}, {SHORT!r}, folder={str(tmp_path / "other")!r})
        try:
            other.wait(timeout=280)
        except replicant.errors.Error as error:
            print(re.search("MuJoCo 3.17.0 is needed, but .*; hint: pip install", str(error))
                  is not None or error)
        """)
    found = subprocess.run([sys.executable, "-c", text], env=environment, cwd=tmp_path, text=True,
                           stdout=subprocess.PIPE, timeout=290, check=True)
    assert found.stdout == "40 (1,)\n1\nTrue\nTrue\n"
