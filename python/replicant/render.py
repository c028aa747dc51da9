"""Pictures of MuJoCo scenes without OpenGL: mujoco.Renderer's, many times as fast on a CPU.

    from replicant import render
    with render.Renderer(model, 240, 320) as renderer:  # any mujoco.MjModel
        renderer.update_scene(data, camera="track")
        picture = renderer.render()                     # uint8 [240, 320, 3]

Renderer      the face of mujoco.Renderer: colours, depth and segmentation
render_batch  many pictures, on several threads without the GIL
install       has existing code use it: mujoco.Renderer and Gymnasium's MuJoCo environments
uninstall     takes that back

The models and data are the user's own, of any MuJoCo from 3.2 on. Where the installed version is
the one that this package was built with, MuJoCo's structures are read where they are. Of other
versions the numbers are copied by name, which takes longer.

A scene that the ray caster cannot draw is an errors.UnsupportedScene that names the reason.
"""

import concurrent.futures
import os
import threading
import warnings
import weakref

import numpy as np

try:
    import mujoco
except ImportError as error:
    raise ImportError("replicant.render draws models of the package mujoco, which cannot be "
                      "imported; hint: pip install 'WHEEL[mujoco]'") from error

from replicant import _libraries
from replicant.errors import InvalidArgument, UnsupportedScene

with _libraries.mujoco_if_any():
    from replicant import _render
from replicant._render import Output

__all__ = ["Renderer", "install", "render_batch", "uninstall"]

# whether MuJoCo's structures are those that the module was compiled with
_IS_KNOWN = mujoco.mj_version() == _render.MUJOCO_VERSION
_MUJOCO_RENDERER = getattr(mujoco, "Renderer", None)

_SHAPES = {Output.COLOR: (3,), Output.DEPTH: (), Output.SEGMENTATION: (2,)}
_DTYPES = {Output.COLOR: np.uint8, Output.DEPTH: np.float32, Output.SEGMENTATION: np.int32}
_OUTPUTS = {"rgb": Output.COLOR, "depth": Output.DEPTH, "segmentation": Output.SEGMENTATION}

# newest core of a model, whose textures the next one takes over
_newest = weakref.WeakKeyDictionary()
# cores of render_batch
_batch_cores = weakref.WeakKeyDictionary()


def _make_core(model):
    like = _newest.get(model, lambda: None)()
    core = _render.SceneRenderer(model, _IS_KNOWN, like)
    _newest[model] = weakref.ref(core)
    return core


def _camera_id(model, camera, where):
    """The number of a camera given by its name or its number; -1 is the free one."""
    if isinstance(camera, str):
        found = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA.value, camera)
        if found == -1:
            names = [model.camera(i).name for i in range(model.ncam)]
            raise InvalidArgument(f'{where}: the camera "{camera}" does not exist; the model has '
                                  f"{names}")
        return found
    if not -1 <= camera < model.ncam:
        raise InvalidArgument(f"{where}: camera {camera} given; allowed: -1 (free) to "
                              f"{model.ncam - 1}, or a name")
    return int(camera)


class Renderer:
    """Draws a model as mujoco.Renderer does, with the same methods.

    model       a mujoco.MjModel
    height      rows, 1 to 4096; not limited by the model's offheight
    width       columns, 1 to 4096
    max_geom    geoms that a scene can hold
    font_scale  has no effect: text is not drawn
    fallback    scenes that the ray caster cannot draw are drawn by mujoco's own renderer, which
                needs OpenGL; the first one is a warning with the reason

    `scene` is a mujoco.MjvScene: geoms may be added to it between update_scene() and render(), and
    its flags mjRND_SHADOW, mjRND_REFLECTION and mjRND_SKYBOX be turned off.

    Raises UnsupportedScene for a model that cannot be drawn. One thread at a time.
    """

    def __init__(self, model, height=240, width=320, max_geom=10000, font_scale=None, *,
                 fallback=False):
        del font_scale
        for name, value in (("height", height), ("width", width)):
            if not 1 <= value <= 4096:
                raise InvalidArgument(f"Renderer: {name} {value} given; allowed: 1 to 4096")
        self._model = model
        self._height = int(height)
        self._width = int(width)
        self._max_geom = max_geom
        self._fallback = fallback
        self._opengl = None  # mujoco's renderer, once it is needed
        self._is_closed = False
        self._output = Output.COLOR
        self._scene = mujoco.MjvScene(model, max_geom)
        self._option = mujoco.MjvOption()
        self._core = None
        try:
            self._core = _make_core(model)
        except UnsupportedScene as reason:
            self._fall_back(reason)

    @property
    def model(self):
        return self._model

    @property
    def scene(self):
        return self._scene

    @property
    def height(self):
        return self._height

    @property
    def width(self):
        return self._width

    def enable_depth_rendering(self):
        """render() gives distances from the camera's plane, float32 [height, width]."""
        self._output = Output.DEPTH

    def disable_depth_rendering(self):
        if self._output == Output.DEPTH:
            self._output = Output.COLOR

    def enable_segmentation_rendering(self):
        """render() gives the object's number and type (mjtObj), int32 [height, width, 2]; -1, -1
        where nothing is."""
        self._output = Output.SEGMENTATION

    def disable_segmentation_rendering(self):
        if self._output == Output.SEGMENTATION:
            self._output = Output.COLOR

    def update_scene(self, data, camera=-1, scene_option=None):
        """Takes the state of `data` over into the scene.

        data          a mujoco.MjData of the model, whose positions are up to date (mj_forward)
        camera        number or name of a camera, -1 for the free one, or a mujoco.MjvCamera
        scene_option  a mujoco.MjvOption; None: MuJoCo's default

        Raises ValueError for a camera that does not exist.
        """
        if not isinstance(camera, mujoco.MjvCamera):
            number = _camera_id(self._model, camera, "update_scene")
            camera = mujoco.MjvCamera()
            camera.fixedcamid = number
            if number == -1:
                camera.type = mujoco.mjtCamera.mjCAMERA_FREE
                mujoco.mjv_defaultFreeCamera(self._model, camera)
            else:
                camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        mujoco.mjv_updateScene(self._model, data, scene_option or self._option, None, camera,
                               mujoco.mjtCatBit.mjCAT_ALL.value, self._scene)

    def render(self, *, out=None):
        """Draws the scene: uint8 [height, width, 3], or what enable_depth_rendering() or
        enable_segmentation_rendering() say. Row 0 is on top.

        out  an array of that shape that takes the picture, cast to its type; it is returned

        Raises UnsupportedScene for a scene that cannot be drawn, RuntimeError after close().
        """
        if self._is_closed:
            raise RuntimeError("render cannot be called after close.")
        shape = (self._height, self._width, *_SHAPES[self._output])
        dtype = _DTYPES[self._output]
        if out is not None and out.shape != shape:
            raise InvalidArgument(f"render: out has the shape {out.shape}, want {shape}")
        is_target = out is not None and out.dtype == dtype and out.flags.carray
        picture = out if is_target else np.empty(shape, dtype)
        self._draw(picture)
        if out is None or is_target:
            return picture
        out[...] = picture
        return out

    def reload_assets(self):
        """Takes changed textures, meshes and height fields of the model over. With a MuJoCo of
        another version than the package's, changed materials and visual settings too."""
        if self._core is not None:
            self._core.reload_assets(self._model)
        if self._opengl is not None:
            self._opengl.close()
            self._opengl = None

    def close(self):
        """Frees the textures, meshes and height fields."""
        self._is_closed = True
        self._core = None
        if self._opengl is not None:
            self._opengl.close()
            self._opengl = None

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_value, traceback):
        self.close()

    def _draw(self, picture):
        if self._core is not None:
            try:
                self._core.render(self._model, self._scene, self._output, self._height,
                                  self._width, picture)
                return
            except UnsupportedScene as reason:
                self._fall_back(reason)
        if self._opengl is None:
            self._opengl = _MUJOCO_RENDERER(self._model, self._height, self._width, self._max_geom)
            # the scene with the geoms that were added to it
            self._opengl._scene = self._scene
        self._opengl.disable_depth_rendering()
        self._opengl.disable_segmentation_rendering()
        if self._output == Output.DEPTH:
            self._opengl.enable_depth_rendering()
        elif self._output == Output.SEGMENTATION:
            self._opengl.enable_segmentation_rendering()
        picture[...] = self._opengl.render()

    def _fall_back(self, reason):
        if not self._fallback or _MUJOCO_RENDERER is None:
            raise reason
        warnings.warn(f"{reason}; mujoco.Renderer draws it, many times slower", stacklevel=4)


def _as_list(value, count):
    return list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value] * count


def render_batch(models, datas, cameras=-1, height=240, width=320, *, scene_option=None,
                 output="rgb", num_threads=None, out=None, reload_assets=False):
    """Draws many states on several threads, without the GIL.

    models         a mujoco.MjModel, or one for each of `datas`
    datas          a sequence of mujoco.MjData, whose positions are up to date; one may stand there
                   several times, for several cameras
    cameras        number or name of a camera (-1: the free one), or one for each of `datas`
    height, width  1 to 4096
    scene_option   a mujoco.MjvOption; None: MuJoCo's default
    output         "rgb", "depth" or "segmentation", as Renderer.render() gives them
    num_threads    threads; None: one per processor
    out            an array that takes the pictures, in one piece
    reload_assets  a model's textures, meshes and height fields are taken over in its first batch;
                   True: now, again

    Returns [len(datas), height, width, ...]. No data and no model may change meanwhile. Raises
    ValueError for arguments that do not fit, UnsupportedScene for a scene that cannot be drawn.
    """
    datas = list(datas)
    models, cameras = _as_list(models, len(datas)), _as_list(cameras, len(datas))
    for name, values in (("models", models), ("cameras", cameras)):
        if len(values) != len(datas):
            raise InvalidArgument(f"render_batch: {len(values)} {name} and {len(datas)} datas "
                                  "given")
    if output not in _OUTPUTS:
        raise InvalidArgument(f"render_batch: output {output!r} given; allowed: {list(_OUTPUTS)}")
    if not (1 <= height <= 4096 and 1 <= width <= 4096):
        raise InvalidArgument(f"render_batch: pictures of {height} x {width} requested; each side "
                              "must be in [1, 4096]")
    if num_threads is None:
        num_threads = len(os.sched_getaffinity(0))
    if num_threads < 1:
        raise InvalidArgument(f"render_batch: num_threads {num_threads} given; want at least 1")
    for i, (model, data) in enumerate(zip(models, datas)):
        _check_pair(i, model, data)
    kind = _OUTPUTS[output]
    numbers = [_camera_id(model, camera, f"render_batch: picture {i}")
               for i, (model, camera) in enumerate(zip(models, cameras))]
    shape, dtype = (len(datas), height, width, *_SHAPES[kind]), _DTYPES[kind]
    if out is None:
        out = np.empty(shape, dtype)
    elif out.shape != shape or out.dtype != dtype or not out.flags.carray:
        raise InvalidArgument(f"render_batch: out is {out.dtype} {out.shape}, want "
                              f"{dtype.__name__} {shape} in one piece")
    if not _IS_KNOWN:
        _render_batch_by_name(models, datas, numbers, kind, scene_option, num_threads, out)
        return out
    for model in {id(model): model for model in models}.values():
        if model not in _batch_cores:
            _batch_cores[model] = _make_core(model)
        elif reload_assets:
            _batch_cores[model].reload_assets(model)
    _render.render_batch([_batch_cores[model] for model in models], models, datas, numbers, kind,
                         height, width, scene_option, num_threads, out)
    return out


def _check_pair(i, model, data):
    """The functions of MuJoCo do not check that a data belongs to a model."""
    if getattr(data, "model", None) is model:
        return
    for name, count in (("xpos", model.nbody), ("geom_xpos", model.ngeom), ("qpos", model.nq),
                        ("site_xpos", model.nsite), ("cam_xpos", model.ncam),
                        ("light_xpos", model.nlight), ("ten_length", model.ntendon),
                        ("ctrl", model.nu)):
        if len(getattr(data, name)) != count:
            raise InvalidArgument(f"render_batch: picture {i}: the data is not of this model: its "
                                  f"{name} has {len(getattr(data, name))} rows, want {count}")


def _render_batch_by_name(models, datas, cameras, output, scene_option, num_threads, out):
    """The batch of another version of MuJoCo: only the drawing is without the GIL."""
    of_thread = threading.local()
    groups = {}  # a data is for one thread at a time
    for i, data in enumerate(datas):
        groups.setdefault(id(data), []).append(i)

    def draw(group):
        renderers = of_thread.__dict__.setdefault("renderers", {})
        for i in group:
            model = models[i]
            if id(model) not in renderers:
                renderers[id(model)] = Renderer(model, *out.shape[1:3])
            renderer = renderers[id(model)]
            renderer._output = output
            renderer.update_scene(datas[i], cameras[i], scene_option)
            renderer.render(out=out[i])

    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        for _ in pool.map(draw, groups.values()):
            pass


class _WithFallback(Renderer):
    """mujoco.Renderer after install()."""

    def __init__(self, model, height=240, width=320, max_geom=10000, font_scale=None):
        super().__init__(model, height, width, max_geom, font_scale, fallback=True)


_replaced = []  # (module, name, original)


def _replace(module, name, value):
    _replaced.append((module, name, getattr(module, name)))
    setattr(module, name, value)


def install(*, fallback=True):
    """Has existing code draw with the ray caster: whoever makes a mujoco.Renderer from now on, and
    Gymnasium's MuJoCo environments with render_mode "rgb_array", "depth_array" or "rgbd_tuple".

    fallback  scenes that the ray caster cannot draw are drawn by OpenGL as before, with a warning;
              False: they are an UnsupportedScene

    Call it before the environments are made. Code that has imported the class itself
    (`from mujoco import Renderer`) must do so afterwards.
    """
    uninstall()
    if _MUJOCO_RENDERER is not None:
        _replace(mujoco, "Renderer", _WithFallback if fallback else Renderer)
    try:
        from gymnasium.envs.mujoco import mujoco_rendering
    except ImportError:  # Gymnasium, or what its MuJoCo environments need, is not installed
        return
    from replicant._gymnasium_viewer import make_viewer
    _replace(mujoco_rendering, "OffScreenViewer",
             make_viewer(mujoco_rendering.OffScreenViewer, fallback))


def uninstall():
    """Takes install() back. What was made meanwhile keeps its renderer."""
    while _replaced:
        module, name, original = _replaced.pop()
        setattr(module, name, original)
