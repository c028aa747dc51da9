"""The ray caster in the place of the OpenGL viewer of Gymnasium's MuJoCo environments."""

import mujoco
import numpy as np

from replicant.errors import UnsupportedScene
from replicant.render import Renderer


def make_viewer(base, fallback):
    """A class with the face of `base`, Gymnasium's OffScreenViewer.

    fallback  what the ray caster cannot draw is drawn by an object of `base`
    """

    class OffScreenViewer(base):
        def __init__(self, model, data, width, height, max_geom=1000, visual_options=None):
            self._arguments = (model, data, width, height, max_geom, visual_options)
            self.model, self.data = model, data
            self._markers, self._overlays = [], {}
            self.viewport = mujoco.MjrRect(0, 0, width, height)
            self._opengl = None
            try:
                self._renderer = Renderer(model, height, width, max_geom)
                self.scn = self._renderer.scene
            except UnsupportedScene as reason:
                self._renderer = None
                self._reason = reason
                self.scn = mujoco.MjvScene(model, max_geom)
            self.cam, self.vopt = mujoco.MjvCamera(), mujoco.MjvOption()
            self.pert = mujoco.MjvPerturb()
            for flag, value in (visual_options or {}).items():
                self.vopt.flags[flag] = value
            self._init_camera()

        def make_context_current(self):
            if self._opengl is not None:
                self._opengl.make_context_current()

        def free(self):
            pass

        close = free

        def render(self, render_mode, camera_id=None, segmentation=False):
            if camera_id is not None:
                self.cam.type = (mujoco.mjtCamera.mjCAMERA_FREE if camera_id == -1
                                 else mujoco.mjtCamera.mjCAMERA_FIXED)
                self.cam.fixedcamid = camera_id
            try:
                return self._draw(render_mode, segmentation)
            except UnsupportedScene:
                if not fallback:
                    raise
            return self._draw_with_opengl(render_mode, camera_id, segmentation)

        def _draw(self, render_mode, segmentation):
            if self._renderer is None:
                raise self._reason
            if self._overlays:
                raise UnsupportedScene("raycast: text over a picture cannot be drawn")
            mujoco.mjv_updateScene(self.model, self.data, self.vopt, self.pert, self.cam,
                                   mujoco.mjtCatBit.mjCAT_ALL, self.scn)
            for marker in self._markers:
                self._add_marker_to_scene(marker)
            color = depth = None
            if render_mode in ("depth_array", "rgbd_tuple"):
                self._renderer.enable_depth_rendering()
                depth = self._window_depth(self._renderer.render())
                self._renderer.disable_depth_rendering()
            if render_mode in ("rgb_array", "rgbd_tuple"):
                if segmentation:
                    self._renderer.enable_segmentation_rendering()
                color = self._renderer.render()
                self._renderer.disable_segmentation_rendering()
                if segmentation:
                    color = color[..., ::-1]  # Gymnasium's order is type, number
            self._markers.clear()
            if render_mode == "rgb_array":
                return color
            return depth if render_mode == "depth_array" else (color, depth)

        def _window_depth(self, distance):
            """Gymnasium gives the depth buffer itself: 0 at the near plane, 1 at the far one."""
            extent = self.model.stat.extent
            near, far = self.model.vis.map.znear * extent, self.model.vis.map.zfar * extent
            distance = distance.astype(np.float64)
            if self.scn.camera[0].orthographic:
                depth = (distance - near) / (far - near)
            else:
                depth = (1 - near / distance) * (far / (far - near))
            return depth.clip(0, 1).astype(np.float32)

        def _draw_with_opengl(self, render_mode, camera_id, segmentation):
            if self._opengl is None:
                self._opengl = base(*self._arguments)
            for name in ("cam", "vopt", "pert", "_markers", "_overlays"):
                setattr(self._opengl, name, getattr(self, name))
            return self._opengl.render(render_mode, camera_id, segmentation)

    return OffScreenViewer
