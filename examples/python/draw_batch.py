"""Draws many states of a MuJoCo model: one by one by mujoco.Renderer, and in one call.

    python draw_batch.py MODEL.xml [--states 64] [--height 84] [--width 84]

mujoco.Renderer needs OpenGL: MUJOCO_GL=osmesa or egl on a machine without a screen.
"""

import argparse
import time

import mujoco
import numpy as np

from replicant import render


def make_states(model, count, seed=1):
    """`count` states with random velocities, a tenth of a second later."""
    rng = np.random.default_rng(seed)
    states = []
    for _ in range(count):
        data = mujoco.MjData(model)
        data.qvel[:] = rng.normal(0, 1, model.nv)
        while data.time < 0.1:
            mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        states.append(data)
    return states


def draw_one_by_one(make_renderer, model, states, height, width):
    """Returns the pictures, uint8 [states, height, width, 3], and the seconds that they took."""
    with make_renderer(model, height, width) as renderer:
        renderer.update_scene(states[0])
        renderer.render()  # not counted: the first one loads more
        start = time.perf_counter()
        pictures = []
        for data in states:
            renderer.update_scene(data)
            pictures.append(renderer.render())
        return np.stack(pictures), time.perf_counter() - start


def draw_together(model, states, height, width):
    render.render_batch(model, states, height=height, width=width)  # as above, in each thread
    start = time.perf_counter()
    pictures = render.render_batch(model, states, height=height, width=width)
    return pictures, time.perf_counter() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--states", type=int, default=64)
    parser.add_argument("--height", type=int, default=84)
    parser.add_argument("--width", type=int, default=84)
    arguments = parser.parse_args()
    model = mujoco.MjModel.from_xml_path(arguments.model)
    states = make_states(model, arguments.states)
    size = arguments.height, arguments.width
    theirs, seconds = draw_one_by_one(mujoco.Renderer, model, states, *size)
    print(f"mujoco.Renderer         {1e3 * seconds / len(states):8.3f} ms a picture")
    ours, seconds = draw_one_by_one(render.Renderer, model, states, *size)
    print(f"render.Renderer         {1e3 * seconds / len(states):8.3f} ms")
    together, seconds = draw_together(model, states, *size)
    print(f"render.render_batch     {1e3 * seconds / len(states):8.3f} ms")
    assert (together == ours).all()
    difference = np.abs(ours.astype(int) - theirs.astype(int)).mean()
    print(f"mean absolute difference {difference:.2f} of 255")
