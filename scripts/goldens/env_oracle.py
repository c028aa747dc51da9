"""Records trajectories of dm_control, which our environments must reproduce.

Used by make_env.py and by scripts/checks/env_parity, env_pixels and env_resets.
"""

import os
import subprocess

# quadruped-escape makes a rendering context at reset
os.environ.setdefault("MUJOCO_GL", "osmesa")

import mujoco
import numpy as np
import safetensors.numpy
from dm_control.mujoco.wrapper.mjbindings import sizes

# dm_control 1.0.50 lists arrays that MuJoCo 4 no longer has (of flexes, which no
# task uses) and fails as it makes an index of each. Without these names it runs.
for struct, cls in (("mjmodel", mujoco.MjModel), ("mjdata", mujoco.MjData)):
    for field in [f for f in sizes.array_sizes[struct] if not hasattr(cls, f)]:
        del sizes.array_sizes[struct][field]
from dm_control import suite  # noqa: E402

# Over this many steps observations and rewards must agree; dog-fetch is chaotic
# (rounding of the last bit grows to 1e-9 within a dozen steps).
PARITY_STEPS = {"dog-fetch": 10}
DEFAULT_PARITY_STEPS = 60

# Arrays of mjModel that a reset may change.
MODEL_FIELDS = [
    "body_pos", "body_quat", "dof_damping", "geom_pos", "geom_rgba",
    "geom_size", "hfield_data", "jnt_stiffness", "light_pos", "site_pos",
    "site_rgba", "site_size", "wrap_prm",
]


def task_names():
    return ["-".join(pair) for pair in suite.ALL_TASKS]


def parity_steps(task):
    return PARITY_STEPS.get(task, DEFAULT_PARITY_STEPS)


def load(task, seed):
    domain, name = task.split("-", 1)
    return suite.load(domain, name, task_kwargs={"random": seed})


def flat(observation):
    return np.concatenate([np.ravel(value) for value in observation.values()])


def integration_state(physics):
    return physics.get_state(sig=int(mujoco.mjtState.mjSTATE_INTEGRATION))


def changed_fields(task, environment):
    """The arrays of the model that the reset, or the seed, has changed."""
    fresh = load(task, seed=987654321).physics.model.ptr
    model = environment.physics.model.ptr
    changed = {}
    for name in MODEL_FIELDS:
        value = np.array(getattr(model, name))
        if not np.array_equal(value, getattr(fresh, name)):
            changed["model/" + name] = value
    return changed


def random_actions(spec, steps, seed):
    rng = np.random.RandomState(seed)
    low = np.maximum(spec.minimum, -1.0)
    high = np.minimum(spec.maximum, 1.0)
    return rng.uniform(low, high, (steps,) + spec.shape)


def record(task, seed, steps, look=lambda environment: None):
    """One trajectory: the input of env_rollout and its expected output.

    look(environment) is called in every state.
    """
    environment = load(task, seed)
    time_steps = [environment.reset()]
    arrays = {"state": integration_state(environment.physics)}
    arrays.update(changed_fields(task, environment))
    arrays["action"] = random_actions(environment.action_spec(), steps, seed)
    # a copy: dm_control returns views of the simulation
    observations = [flat(time_steps[0].observation)]
    look(environment)
    for action in arrays["action"]:
        time_steps.append(environment.step(action))
        observations.append(flat(time_steps[-1].observation))
        look(environment)
    arrays["observation"] = np.array(observations, np.float64)
    arrays["reward"] = np.array([t.reward for t in time_steps[1:]], np.float64)
    arrays["discount"] = np.array([t.discount for t in time_steps[1:]], np.float64)
    arrays["step_type"] = np.array([int(t.step_type) for t in time_steps], np.int64)
    return arrays


def play(env_rollout, task, arrays, folder, options=()):
    """The output of env_rollout for a recording."""
    source, result = folder / "in.safetensors", folder / "out.safetensors"
    inputs = {k: v for k, v in arrays.items()
              if k in ("state", "action") or k.startswith("model/")}
    safetensors.numpy.save_file(inputs, source)
    subprocess.run([env_rollout, "--task", task, "--input", source,
                    "--output", result, *options], check=True)
    return safetensors.numpy.load_file(result)
