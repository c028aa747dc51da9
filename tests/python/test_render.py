"""replicant.render against mujoco.Renderer, which draws in a process of its own.

MuJoCo's renderer needs OSMesa. One process for each comparison: on OSMesa, MuJoCo 3.17's draws
garbage once an older renderer of the process was closed.
"""

import concurrent.futures
import copy
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from replicant import _libraries, errors, render  # noqa: E402

SHAPES = """
<mujoco>
  <visual><map znear="0.02" zfar="30"/><global offwidth="320" offheight="240"/></visual>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1=".4 .6 .8" rgb2="0 0 0" width="32" height="192"/>
    <texture name="grid" type="2d" builtin="checker" width="64" height="64" rgb1=".1 .2 .3"
             rgb2=".2 .3 .4"/>
    <material name="grid" texture="grid" texrepeat="4 4" reflectance="0.2"/>
    <mesh name="wedge" vertex="0 0 0  .5 0 0  0 .5 0  0 0 .6  .4 .4 .5"/>
    <hfield name="hills" nrow="4" ncol="5" size=".6 .6 .3 .1"
            elevation="0 .3 .1 0 .2  .4 1 .2 .5 .1  0 .2 .6 .3 0  .1 0 .2 .4 .8"/>
  </asset>
  <worldbody>
    <light pos="0 -1 4" dir="0 .2 -1" diffuse=".8 .8 .8"/>
    <light pos="2 0 3" dir="-.5 0 -1" directional="true" diffuse=".3 .3 .3" castshadow="false"/>
    <camera name="side" pos="0 -4 1.6" xyaxes="1 0 0 0 .3 1"/>
    <camera name="above" pos=".5 -.5 4" xyaxes="1 0 0 0 1 0" fovy="60"/>
    <geom name="floor" type="plane" size="3 3 .1" material="grid"/>
    <body pos="0 0 .5">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="sphere" size=".25" rgba=".8 .2 .2 1"/>
      <geom type="ellipsoid" size=".15 .3 .2" pos=".8 0 0" euler="20 30 0" rgba=".2 .8 .2 1"/>
      <geom type="capsule" fromto="-.9 0 -.2 -.6 .2 .5" size=".1" rgba=".2 .2 .8 1"/>
      <geom type="cylinder" size=".15 .25" pos="-.4 -.8 0" euler="50 0 20" rgba=".8 .8 .2 1"/>
      <geom type="box" size=".2 .15 .1" pos=".5 -.8 .1" euler="10 40 20" rgba=".2 .8 .8 1"/>
      <geom type="mesh" mesh="wedge" pos="-1.4 -.5 0" rgba=".9 .6 .3 1"/>
      <site size=".06" pos="0 -.4 .5" rgba="1 1 0 1"/>
      <geom type="sphere" size=".2" pos="1.5 -.6 .2" rgba=".5 .2 .9 .4"/>
    </body>
    <geom type="hfield" hfield="hills" pos="1.2 1.2 .2" rgba=".4 .5 .3 1"/>
  </worldbody>
</mujoco>
"""

# draws color, depth and segmentation of one camera: MODEL_FILE OUTPUT_FILE QPOS CAMERA H W OPTION
ORACLE = """
import sys
import mujoco
import numpy as np
model = mujoco.MjModel.from_xml_path(sys.argv[1])
data = mujoco.MjData(model)
data.qpos[:] = np.load(sys.argv[3])
mujoco.mj_forward(model, data)
camera, height, width = int(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])
renderer = mujoco.Renderer(model, height, width)
option = mujoco.MjvOption()
exec(sys.argv[7])
renderer.update_scene(data, camera, option)
color = renderer.render()
renderer.enable_depth_rendering()
depth = renderer.render()
renderer.enable_segmentation_rendering()
np.savez(sys.argv[2], color=color, depth=depth, segmentation=renderer.render())
"""


def has_osmesa():
    """Whether this machine can draw with MuJoCo's own renderer."""
    program = ("import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco/>'); "
               "mujoco.Renderer(m, 8, 8)")
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False,
                          env=os.environ | {"MUJOCO_GL": "osmesa"}, timeout=600).returncode == 0


@pytest.fixture(scope="module")
def osmesa():
    if not has_osmesa():
        pytest.skip("mujoco.Renderer cannot draw here: OSMesa or PyOpenGL is missing")


def model_and_data(xml=SHAPES, slide=0.1):
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    if model.nq == 1:
        data.qpos[0] = slide
    mujoco.mj_forward(model, data)
    return model, data


def pictures(renderer, data, camera, option=None):
    """Colour, depth and segmentation."""
    renderer.update_scene(data, camera, option)
    found = {"color": renderer.render()}
    renderer.enable_depth_rendering()
    found["depth"] = renderer.render()
    renderer.enable_segmentation_rendering()
    found["segmentation"] = renderer.render()
    renderer.disable_segmentation_rendering()
    return found


def oracle(tmp_path, model_file, data, camera, height, width, option="pass"):
    np.save(tmp_path / "qpos.npy", data.qpos)
    arguments = [model_file, tmp_path / "o.npz", tmp_path / "qpos.npy", camera, height, width,
                 option]
    subprocess.run([sys.executable, "-c", ORACLE, *map(str, arguments)], check=True, timeout=600,
                   env=os.environ | {"MUJOCO_GL": "osmesa"})
    return np.load(tmp_path / "o.npz")


def is_away_from_edges(segmentation):
    """Pixels whose eight neighbours show the same object."""
    height, width = segmentation.shape[:2]
    inside = np.zeros((height, width), bool)
    inside[1:-1, 1:-1] = True
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            moved = np.roll(segmentation, (dy, dx), (0, 1))
            inside &= (moved == segmentation).all(-1)
    return inside


def check_like(ours, theirs, far):
    """The bounds that the documentation states."""
    difference = np.abs(ours["color"].astype(int) - theirs["color"].astype(int))
    assert difference.mean() < 1.0
    assert ours["depth"].dtype == np.float32 and ours["segmentation"].dtype == np.int32
    is_same = (ours["segmentation"] == theirs["segmentation"]).all(-1)
    assert is_same.mean() >= 0.999
    inside = is_away_from_edges(theirs["segmentation"])
    assert inside.mean() > 0.5
    assert np.abs(ours["depth"] - theirs["depth"])[inside].max() <= 1e-4 * far


def far_of(model):
    return model.vis.map.zfar * model.stat.extent


ORTHOGRAPHIC = SHAPES.replace('offheight="240"', 'offheight="240" orthographic="true"').replace(
    'fovy="60"', 'projection="orthographic" fovy="7"').replace(
    'xyaxes="1 0 0 0 .3 1"', 'xyaxes="1 0 0 0 .3 1" projection="orthographic" fovy="5"')


@pytest.mark.parametrize("xml", [SHAPES, ORTHOGRAPHIC], ids=["perspective", "orthographic"])
@pytest.mark.parametrize("camera", [-1, 0, 1])
def test_pictures_equal_those_of_mujocos_renderer(osmesa, tmp_path, camera, xml):
    file = tmp_path / "model.xml"
    file.write_text(xml, encoding="utf-8")
    model, data = model_and_data(xml)
    with render.Renderer(model, 180, 240) as renderer:
        ours = pictures(renderer, data, camera)
    theirs = oracle(tmp_path, file, data, camera, 180, 240)
    check_like(ours, theirs, far_of(model))
    seen = {tuple(pair) for pair in theirs["segmentation"].reshape(-1, 2)}
    assert (-1, -1) in seen and len(seen) >= 8


@pytest.mark.skipif(not render._IS_KNOWN, reason="each MuJoCo's renderer has another look")
@pytest.mark.parametrize("name", ["cheetah", "humanoid", "cartpole", "manipulator", "walker"])
def test_pictures_of_the_control_suite_equal_those_of_mujocos_renderer(osmesa, tmp_path, name):
    file = pathlib.Path(_libraries.suite_folder()) / f"{name}.xml"
    model = mujoco.MjModel.from_xml_path(str(file))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ours = pictures(render.Renderer(model, 96, 128), data, 0)
    check_like(ours, oracle(tmp_path, file, data, 0, 96, 128), far_of(model))


def test_an_option_and_the_flags_of_the_scene_count(osmesa, tmp_path):
    file = tmp_path / "model.xml"
    file.write_text(SHAPES, encoding="utf-8")
    model, data = model_and_data()
    renderer = render.Renderer(model, 120, 160)
    option = mujoco.MjvOption()
    default = pictures(renderer, data, 0)
    change = "option.sitegroup[0] = 0; option.geomgroup[1] = 0"
    exec(change, {"option": option})
    flags = [mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION,
             mujoco.mjtRndFlag.mjRND_SKYBOX]
    for flag in flags:
        renderer.scene.flags[flag] = 0
        change += f"\nrenderer.scene.flags[{int(flag)}] = 0"
    ours = pictures(renderer, data, 0, option)
    check_like(ours, oracle(tmp_path, file, data, 0, 120, 160, change), far_of(model))
    assert np.abs(ours["color"].astype(int) - default["color"]).mean() > 2


# bodies in contact, a range finder and a mesh with a hull of its own
DECOR = """
<mujoco>
  <visual><scale jointlength="3"/></visual>
  <asset><mesh name="star" vertex="0 0 0  .6 0 0  0 .6 0  0 0 .6  .15 .15 .15"
               face="0 2 1  0 1 3  0 3 2  1 4 3  2 3 4  1 2 4"/></asset>
  <worldbody>
    <light pos="0 -1 4" dir="0 .2 -1"/>
    <camera pos="0 -3 1.6" xyaxes="1 0 0 0 .4 1"/>
    <geom type="plane" size="3 3 .1" rgba=".5 .4 .4 1"/>
    <body pos="-.6 0 .19"><freejoint/>
      <geom type="box" size=".2 .2 .2" rgba=".8 .3 .2 1"/>
      <site name="eye" pos=".3 0 .1" zaxis="1 0 0"/></body>
    <body pos=".6 0 .5"><joint axis="0 1 0"/><joint type="slide" axis="0 0 1"/>
      <geom type="capsule" size=".1 .3" rgba=".2 .3 .8 1"/></body>
    <body pos="0 .6 .4" euler="0 0 -135"><joint type="ball"/>
      <geom type="mesh" mesh="star" rgba=".3 .8 .2 1"/></body>
  </worldbody>
  <sensor><rangefinder site="eye"/></sensor>
</mujoco>
"""


@pytest.mark.parametrize("flags", [["JOINT"], ["CONTACTPOINT", "CONTACTFORCE"], ["CONVEXHULL"],
                                   ["INERTIA", "COM"], ["RANGEFINDER"]])
def test_what_options_add_is_drawn(osmesa, tmp_path, flags):
    file = tmp_path / "model.xml"
    file.write_text(DECOR, encoding="utf-8")
    model, data = model_and_data(DECOR)
    change = "option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = 0"
    plain = mujoco.MjvOption()
    exec(change, {"option": plain, "mujoco": mujoco})
    change += "".join(f"\noption.flags[mujoco.mjtVisFlag.mjVIS_{flag}] = 1" for flag in flags)
    option = mujoco.MjvOption()
    exec(change, {"option": option, "mujoco": mujoco})
    renderer = render.Renderer(model, 120, 160)
    ours = pictures(renderer, data, 0, option)["color"].astype(int)
    theirs = oracle(tmp_path, file, data, 0, 120, 160, change)["color"]
    assert np.abs(ours - theirs).mean() < 0.25
    assert (ours != pictures(renderer, data, 0, plain)["color"]).any(-1).sum() > 20


def test_geoms_that_are_added_to_the_scene_are_drawn():
    model, data = model_and_data()
    renderer = render.Renderer(model, 60, 80)
    renderer.update_scene(data, "side")
    before = renderer.render()
    mujoco.mjv_initGeom(renderer.scene.geoms[renderer.scene.ngeom], mujoco.mjtGeom.mjGEOM_SPHERE,
                        np.full(3, 0.3), np.array([0.0, -2, 1]), np.eye(3).ravel(),
                        np.array([0, 1, 0, 1], np.float32))
    renderer.scene.ngeom += 1
    after = renderer.render()
    is_green = (after[..., 1] > 150) & (after[..., 0] < 50) & (after[..., 2] < 50)
    assert 20 < is_green.sum() < 1000
    assert (before != after).any(-1).sum() >= is_green.sum()
    # as in OpenGL, decor without a number is not in the segmentation
    renderer.scene.geoms[renderer.scene.ngeom - 1].segid = -1
    renderer.enable_segmentation_rendering()
    with_decor = renderer.render()
    renderer.update_scene(data, "side")
    np.testing.assert_array_equal(renderer.render(), with_decor)


def test_cameras_are_named_numbered_or_made():
    model, data = model_and_data()
    renderer = render.Renderer(model, 60, 80)
    made = mujoco.MjvCamera()
    made.type, made.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 1

    def draw(camera):
        renderer.update_scene(data, camera)
        return renderer.render()

    np.testing.assert_array_equal(draw("above"), draw(1))
    np.testing.assert_array_equal(draw("above"), draw(made))
    assert (draw(0) != draw(1)).any() and (draw(0) != draw(-1)).any()


def test_an_array_takes_the_picture():
    model, data = model_and_data()
    renderer = render.Renderer(model, 30, 40)
    renderer.update_scene(data, 0)
    picture = renderer.render()
    assert picture.shape == (30, 40, 3) and picture.dtype == np.uint8
    out = np.zeros((30, 40, 3), np.uint8)
    assert renderer.render(out=out) is out
    np.testing.assert_array_equal(out, picture)
    wide = np.zeros((30, 80, 3), np.float64)[:, ::2]
    assert renderer.render(out=wide) is wide
    np.testing.assert_array_equal(wide, picture)


def test_changed_colors_show_at_once_and_textures_after_a_reload():
    model, data = model_and_data()
    renderer = render.Renderer(model, 60, 80)

    def draw():
        renderer.update_scene(data, "above")
        return renderer.render()

    first = draw()
    model.geom_rgba[1] = [0, 0, 0, 1]
    darker = draw()
    assert (darker != first).any()
    model.tex_data[:] = 255 - model.tex_data
    np.testing.assert_array_equal(draw(), darker)
    renderer.reload_assets()
    assert (draw() != darker).any()
    other = render.Renderer(model, 60, 80)
    other.update_scene(data, "above")
    np.testing.assert_array_equal(other.render(), draw())


@pytest.mark.parametrize("output", ["rgb", "depth", "segmentation"])
def test_a_batch_equals_single_pictures(output):
    model = mujoco.MjModel.from_xml_string(SHAPES)
    other = copy.deepcopy(model)
    other.geom_rgba[:, :3] = 1 - other.geom_rgba[:, :3]
    models, datas, cameras = [], [], []
    for i in range(12):
        models.append(other if i % 3 == 2 else model)
        datas.append(mujoco.MjData(models[-1]))
        datas[-1].qpos[0] = 0.1 * i - 0.5
        mujoco.mj_forward(models[-1], datas[-1])
        cameras.append(["side", 1, -1][i % 3])
    # two cameras of one data
    models.append(models[0])
    datas.append(datas[0])
    cameras.append("above")
    batch = render.render_batch(models, datas, cameras, 40, 56, output=output, num_threads=3)
    for i, (model, data, camera) in enumerate(zip(models, datas, cameras)):
        renderer = render.Renderer(model, 40, 56)
        found = pictures(renderer, data, camera)
        np.testing.assert_array_equal(batch[i], found["color" if output == "rgb" else output])
    out = np.empty_like(batch)
    assert render.render_batch(models, datas, cameras, 40, 56, output=output, out=out) is out
    np.testing.assert_array_equal(out, batch)


def test_a_batch_takes_an_option():
    model, data = model_and_data()
    option = mujoco.MjvOption()
    option.geomgroup[0] = 0
    empty = render.render_batch(model, [data], 0, 30, 40, scene_option=option)
    renderer = render.Renderer(model, 30, 40)
    renderer.update_scene(data, 0, option)
    np.testing.assert_array_equal(empty[0], renderer.render())
    assert (empty != render.render_batch(model, [data], 0, 30, 40)).any()


def test_batches_on_several_threads_reload_the_same_model():
    model, data = model_and_data()
    want = render.render_batch(model, [data] * 2, 0, 30, 40)

    def draw(_):
        return render.render_batch(model, [data] * 2, 0, 30, 40, reload_assets=True)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for found in pool.map(draw, range(200)):
            np.testing.assert_array_equal(found, want)


def test_renderers_work_on_several_threads():
    model, data = model_and_data()
    want = render.render_batch(model, [data], 0, 60, 80)[0]
    found = []

    def draw():
        own = mujoco.MjData(model)
        own.qpos[:] = data.qpos
        mujoco.mj_forward(model, own)
        renderer = render.Renderer(model, 60, 80)
        for _ in range(20):
            renderer.update_scene(own, 0)
            found.append((renderer.render() == want).all())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


def messages():
    model, data = model_and_data()
    other, _ = model_and_data("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    renderer = render.Renderer(model, 30, 40)
    renderer.update_scene(data)
    batch = render.render_batch
    yield (lambda: render.Renderer(model, 0, 40),
           "Renderer: height 0 given; allowed: 1 to 4096")
    yield (lambda: renderer.update_scene(data, 2),
           "update_scene: camera 2 given; allowed: -1 (free) to 1, or a name")
    yield (lambda: renderer.update_scene(data, "front"),
           "update_scene: the camera \"front\" does not exist; the model has ['side', 'above']")
    yield (lambda: renderer.render(out=np.empty((40, 30, 3), np.uint8)),
           "render: out has the shape (40, 30, 3), want (30, 40, 3)")
    yield (lambda: batch([model], [data, data]), "render_batch: 1 models and 2 datas given")
    yield (lambda: batch(model, [data], output="colour"),
           "render_batch: output 'colour' given; allowed: ['rgb', 'depth', 'segmentation']")
    yield (lambda: batch(model, [data], [7]),
           "render_batch: picture 0: camera 7 given; allowed: -1 (free) to 1, or a name")
    yield (lambda: batch(other, [data]),
           "render_batch: picture 0: the data is not of this model: its xpos has 2 rows, want 1"
           if not hasattr(data, "model") else None)
    yield (lambda: batch(model, [data], num_threads=0),
           "render_batch: num_threads 0 given; want at least 1")
    yield (lambda: batch(model, [data], 0, 30, 40, out=np.empty((1, 30, 40, 3))),
           "render_batch: out is float64 (1, 30, 40, 3), want uint8 (1, 30, 40, 3) in one piece")


@pytest.mark.parametrize("number", range(10))
def test_an_argument_that_does_not_fit_is_named(number):
    call, message = list(messages())[number]
    with pytest.raises(errors.InvalidArgument) as raised:
        call()
    if message is not None:
        assert str(raised.value) == message


def test_what_cannot_be_drawn_is_named():
    model, data = model_and_data()
    renderer = render.Renderer(model, 30, 40)
    renderer.update_scene(data)
    renderer.scene.flags[mujoco.mjtRndFlag.mjRND_WIREFRAME] = 1
    message = ("raycast: the scene has the flag mjRND_WIREFRAME, which cannot be drawn; hint: use "
               "the renderer gl")
    with pytest.raises(errors.UnsupportedScene) as raised:
        renderer.render()
    assert str(raised.value) == message
    renderer.scene.flags[mujoco.mjtRndFlag.mjRND_WIREFRAME] = 0
    renderer.render()
    renderer.close()
    with pytest.raises(RuntimeError, match="render cannot be called after close"):
        renderer.render()


FALLBACK = """
import warnings
import mujoco, numpy as np
from replicant import render
{install}
model = mujoco.MjModel.from_xml_string('''{xml}''')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = {make}
renderer.scene.flags[mujoco.mjtRndFlag.mjRND_WIREFRAME] = 1
renderer.update_scene(data, 0)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    picture = renderer.render()
assert "mjRND_WIREFRAME" in str(seen[0].message), seen
assert picture.std() > 1
renderer.enable_depth_rendering()
assert renderer.render().shape == (30, 40)
"""


@pytest.mark.parametrize(("install", "make"), [
    ("", "render.Renderer(model, 30, 40, fallback=True)"),
    ("render.install()", "mujoco.Renderer(model, 30, 40)")])
def test_mujocos_renderer_takes_over_what_cannot_be_drawn(osmesa, install, make):
    program = FALLBACK.format(install=install, xml=SHAPES, make=make)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600,
                   env=os.environ | {"MUJOCO_GL": "osmesa"})


def test_install_replaces_mujocos_renderer_and_uninstall_takes_it_back():
    original = mujoco.Renderer
    render.install()
    try:
        model, data = model_and_data()
        with mujoco.Renderer(model, 30, 40) as renderer:
            assert isinstance(renderer, render.Renderer)
            renderer.update_scene(data, "side")
            assert renderer.render().std() > 1
    finally:
        render.uninstall()
    assert mujoco.Renderer is original


GYMNASIUM = """
import sys
import gymnasium, numpy as np
if sys.argv[1] == "raycast":
    from replicant import render
    render.install(fallback=False)
env = gymnasium.make("InvertedPendulum-v5", xml_file=sys.argv[4], render_mode=sys.argv[3],
                     width=160, height=120)
env.unwrapped.mujoco_renderer.camera_id = int(sys.argv[5])
env.reset(seed=1)
env.action_space.seed(1)
frames = []
for _ in range(5):
    env.step(env.action_space.sample())
    frames.append(env.render())
env.close()
np.save(sys.argv[2], np.stack(frames))
"""


PARALLEL = """<camera pos="0 -2 .3" xyaxes="1 0 0 0 0 1" projection="orthographic" fovy=".8"/>"""


@pytest.mark.parametrize(("mode", "camera"), [
    ("rgb_array", -1), ("depth_array", -1), ("depth_array", 0)])
def test_gymnasiums_environments_draw_the_same_pictures(osmesa, tmp_path, mode, camera):
    drawing = pytest.importorskip(
        "gymnasium.envs.mujoco.mujoco_rendering",
        reason="what Gymnasium's MuJoCo environments need is not installed")
    model = pathlib.Path(drawing.__file__).parent / "assets/inverted_pendulum.xml"
    xml = model.read_text(encoding="utf-8").replace("<worldbody>", "<worldbody>" + PARALLEL)
    (tmp_path / "model.xml").write_text(xml, encoding="utf-8")
    frames = {}
    for name in ("raycast", "opengl"):
        subprocess.run([sys.executable, "-c", GYMNASIUM, name, tmp_path / f"{name}.npy", mode,
                        tmp_path / "model.xml", str(camera)], check=True, timeout=600,
                       env=os.environ | {"MUJOCO_GL": "osmesa"})
        frames[name] = np.load(tmp_path / f"{name}.npy")
    ours, theirs = frames["raycast"].astype(float), frames["opengl"].astype(float)
    assert frames["raycast"].dtype == frames["opengl"].dtype
    assert ours.shape == theirs.shape and theirs.std() > 0
    difference = np.abs(ours - theirs)
    if mode == "rgb_array":
        assert difference.mean() < 1.0
    else:
        # OpenGL's depth is that of another sample at edges
        assert np.quantile(difference, 0.97) < 1e-4
