#!/usr/bin/env python3
"""Writes tests/golden/torch: results of PyTorch in float64.

    scripts/goldens/make_torch.py [bf16 | d4pg_NAME]

ops.safetensors: per case "FAMILY/CASE/input0" ... and "output". Differentiable
cases also have "weight" (of each output element in a loss) and "gradient0" ...
of sum(weight * output). Images are channels last, as in our graphs.

For each NAME.yaml in that folder: NAME.safetensors, an input of workload_probe, and
NAME.expected.safetensors, its expected output (docs/workload_probe.md). Image
models also have "evaluation/OUTPUT", the results of the workload's kind
"evaluate" for the first batch after the last step.

bf16_losses.safetensors: "NAME/f64/LOSS" and "NAME/autocast/LOSS" of 20 steps
from each NAME.safetensors, in float64 and in float32 with autocast to bf16; with
the argument bf16 only this file is made, from the others; with d4pg_NAME only
the two files of that name.

manifest.json holds versions and seeds. Makes PyTorch's environment first
(scripts/goldens/torch_environment.py).
"""

import json
import sys

import torch_environment

torch_environment.run_here()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import yaml  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import torch_d4pg  # noqa: E402
import torch_resnet50  # noqa: E402
import torch_sngan  # noqa: E402

FOLDER = torch_environment.ROOT / "tests/golden/torch"
OPS_SEED = 41
D4PG_SEED = 42
MODELS_SEED = 43
STEPS = 10
REPRESENTATION_STEPS = 20
BF16_STEPS = 20


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def uniform(low, high, *shape):
    return low + (high - low) * torch.rand(*shape, dtype=torch.float64)


def away_from(points, x, gap=0.05):
    """x with elements moved away from kinks."""
    for point in points:
        near = (x - point).abs() < gap
        x = torch.where(near, point + gap * torch.where(x < point, -1.0, 1.0), x)
    return x


def distribution(*shape):
    return torch.rand(*shape, dtype=torch.float64).softmax(-1)


def images(f, **options):
    """A function of NCHW images as one of NHWC images."""
    def g(x, *rest):
        return f(x.permute(0, 3, 1, 2), *rest, **options).permute(0, 2, 3, 1)
    return g


def conv_relu(x, w, b):
    return F.relu(F.conv2d(x, w, b, stride=2))


def project(p, r, d):
    return torch_d4pg.project(
        p, r, d, torch.linspace(0, 10, p.shape[1], dtype=torch.float64))


def clip_rows(x):
    return x * (1.5 / x.norm(dim=1, keepdim=True).clamp(min=1.5))


def batch_norm(x, gamma, beta):
    return F.batch_norm(x.permute(0, 3, 1, 2), None, None, gamma, beta,
                        training=True).permute(0, 2, 3, 1)


def batch_norm_inference(x, gamma, beta, mean, variance):
    shape = (1, 1, 1, -1)
    return ((x - mean.view(shape)) / (variance.view(shape) + 1e-5).sqrt()
            * gamma.view(shape) + beta.view(shape))


def cases():
    """(name, function, inputs) of every differentiable op."""
    image = normal(2, 9, 8, 3)
    x = away_from([0.0, 0.5, -0.5], normal(5, 7))
    positive = uniform(0.2, 3.0, 5, 7)
    shift = normal(5, 7)
    other = torch.where((x - shift).abs() < 0.05, shift + 1.0, shift)
    yield "matmul/plain", torch.matmul, [normal(7, 33), normal(33, 5)]
    yield ("matmul/transposed_a", lambda a, b: a.T @ b,
           [normal(33, 7), normal(33, 5)])
    yield ("matmul/transposed_b", lambda a, b: a @ b.T,
           [normal(7, 33), normal(5, 33)])
    yield ("matmul/dense_elu", lambda a, w, b: F.elu(F.linear(a, w, b)),
           [normal(7, 33), normal(5, 33), normal(5)])
    yield "conv/3x3", images(F.conv2d), [image, normal(4, 3, 3, 3)]
    yield ("conv/4x4_stride_2_padding_1",
           images(F.conv2d, stride=2, padding=1), [image, normal(4, 3, 4, 4)])
    yield "conv/5x3_batch_1", images(F.conv2d), [normal(1, 6, 6, 9),
                                                normal(16, 9, 5, 3)]
    yield ("conv/bias_relu_stride_2", images(conv_relu),
           [image, normal(4, 3, 3, 3), normal(4)])
    yield "pool/max", images(F.max_pool2d, kernel_size=2, stride=2), [image]
    yield ("pool/max_overlapping",
           images(F.max_pool2d, kernel_size=3, stride=2, padding=1), [image])
    yield ("pool/average", images(F.avg_pool2d, kernel_size=2, stride=2),
           [image])
    yield ("pool/average_padded",
           images(F.avg_pool2d, kernel_size=3, stride=2, padding=1,
                  count_include_pad=False), [image])
    yield "pool/global_average", lambda a: a.mean((1, 2)), [image]
    yield "pool/upsample_nearest", images(F.interpolate, scale_factor=2), [image]
    yield ("norm/layer_norm", lambda a, g, b: F.layer_norm(a, (11,), g, b),
           [normal(6, 11), normal(11), normal(11)])
    yield ("norm/layer_norm_tanh",
           lambda a, g, b: torch.tanh(F.layer_norm(a, (50,), g, b)),
           [normal(6, 50), normal(50), normal(50)])
    yield "norm/batch_norm", batch_norm, [image, normal(3), normal(3)]
    yield ("norm/batch_norm_inference", batch_norm_inference,
           [image, normal(3), normal(3), normal(3), uniform(0.5, 2.0, 3)])
    for name, f in {
            "exp": torch.exp, "sin": torch.sin, "cos": torch.cos,
            "tanh": torch.tanh, "sigmoid": torch.sigmoid,
            "softplus": F.softplus, "relu": F.relu, "elu": F.elu,
            "leaky_relu": lambda a: F.leaky_relu(a, 0.2), "abs": torch.abs,
            "neg": torch.neg, "square": torch.square,
            "clip": lambda a: a.clamp(-0.5, 0.5),
            "affine": lambda a: 0.7 * a + 0.3}.items():
        yield f"elementwise/{name}", f, [x]
    yield "elementwise/log", torch.log, [positive]
    yield "elementwise/sqrt", torch.sqrt, [positive]
    for name, f in {"add": torch.add, "sub": torch.sub, "mul": torch.mul,
                    "minimum": torch.minimum, "maximum": torch.maximum}.items():
        yield f"elementwise/{name}", f, [x, other]
    yield "elementwise/div", torch.div, [x, positive]
    yield "elementwise/add_broadcast", torch.add, [x, normal(7)]
    yield "elementwise/mul_broadcast", torch.mul, [normal(5, 1), normal(3, 1, 7)]
    yield ("elementwise/where", lambda a, b: torch.where(a < b, a * b, a + b),
           [x, other])
    cube = normal(3, 4, 5)
    yield "reduce/sum", lambda a: a.sum(1), [cube]
    yield "reduce/mean_all", torch.mean, [cube]
    yield "reduce/mean_keep", lambda a: a.mean((0, 2), keepdim=True), [cube]
    yield "reduce/max", lambda a: a.amax(2), [cube]
    yield "reduce/min", lambda a: a.amin((0, 1)), [cube]
    yield "shape/reshape", lambda a: a.reshape(4, 15), [cube]
    yield "shape/transpose", lambda a: a.permute(2, 0, 1), [cube]
    yield ("shape/concat", lambda a, b: torch.cat([a, b], 1),
           [normal(4, 3), normal(4, 5)])
    yield "shape/slice", lambda a: a[1:3, 0:2, 2:5], [cube]
    yield ("shape/pad", lambda a: F.pad(a, (1, 0, 0, 2, 2, 1), value=0.5),
           [cube])
    yield "losses/softmax", lambda a: a.softmax(-1), [normal(4, 51)]
    yield "losses/log_softmax", lambda a: a.log_softmax(-1), [normal(4, 51)]
    yield ("losses/cross_entropy",
           lambda a, t: -(t * a.log_softmax(1)).sum(1),
           [normal(6, 51), distribution(6, 51)])
    yield ("losses/cross_entropy_labels",
           lambda a, t: F.cross_entropy(a, t, reduction="none"),
           [normal(6, 10), torch.tensor([3, 0, 9, 1, 1, 5])])
    yield ("losses/categorical_projection", project,
           [distribution(6, 51), uniform(-1, 4, 6), uniform(0, 1, 6)])
    yield ("indexing/gather", lambda t, i: t[i],
           [normal(5, 4), torch.tensor([[4, 0, 4], [1, 2, 4]])])
    yield ("indexing/one_hot", lambda i: F.one_hot(i, 6).double(),
           [torch.tensor([3, 0, 5, 5])])
    frames = torch.randint(0, 256, (3, 6, 7, 2), dtype=torch.uint8)
    yield ("image/normalize_pixels", lambda a: a.double() * (1 / 255) - 0.5,
           [frames])
    yield ("image/random_shift", torch_d4pg.shift,
           [normal(3, 6, 7, 2),
            torch.tensor([[-2, 3], [0, -9], [4, 1]], dtype=torch.int32)])
    yield "optimizer/clip_rows_by_norm", clip_rows, [normal(6, 4)]


def model_cases():
    """The cases of the image models, drawn after all others."""
    image, residual = normal(3, 4, 5, 6), normal(3, 4, 5, 6)

    def conditional(x, gamma, beta):
        y = batch_norm(x, torch.ones(6).double(), torch.zeros(6).double())
        return y * gamma[:, None, None] + beta[:, None, None]

    yield ("norm/batch_norm_relu", lambda *a: F.relu(batch_norm(*a)),
           [image, normal(6), normal(6)])
    yield ("norm/batch_norm_residual_relu",
           lambda x, g, b, r: F.relu(batch_norm(x, g, b) + r),
           [image, normal(6), normal(6), residual])
    yield ("norm/conditional_batch_norm", conditional,
           [image, normal(3, 6), normal(3, 6)])
    yield ("norm/conditional_batch_norm_relu",
           lambda *a: F.relu(conditional(*a)),
           [image, normal(3, 6), normal(3, 6)])
    yield "norm/spectral_norm", spectral_norm, [normal(5, 4, 3, 3), normal(5)]
    yield ("losses/cross_entropy_smoothed",
           lambda a, t: F.cross_entropy(a, t, reduction="none",
                                        label_smoothing=0.1),
           [normal(6, 10), torch.tensor([3, 0, 9, 1, 1, 5])])


def spectral_norm(w, u):
    """torch.nn.utils.spectral_norm, which keeps u to itself."""
    layer = torch.nn.Module()
    layer.register_parameter("weight", torch.nn.Parameter(w.detach().clone()))
    layer.forward = lambda: layer.weight
    torch.nn.utils.spectral_norm(layer)
    del layer._parameters["weight_orig"]
    layer.weight_orig = w
    layer.weight_u.copy_(u.detach())
    return layer()


# inputs that our ops, by their contract, let no gradient into, and cases with
# no gradient at all
NO_GRADIENT = {("losses/cross_entropy", 1), ("losses/categorical_projection", 0),
               ("losses/categorical_projection", 1),
               ("losses/categorical_projection", 2), ("image/random_shift", 0),
               ("norm/spectral_norm", 1)}


def add_op_cases(tensors, cases):
    for name, f, inputs in cases:
        wanted = [i for i, t in enumerate(inputs)
                  if t.is_floating_point() and (name, i) not in NO_GRADIENT]
        inputs = [t.clone().requires_grad_(i in wanted)
                  for i, t in enumerate(inputs)]
        output = f(*inputs)
        for i, t in enumerate(inputs):
            tensors[f"{name}/input{i}"] = t.detach()
        tensors[f"{name}/output"] = output.detach()
        if not wanted:
            continue
        weight = torch.empty_like(output.detach()).uniform_(-1, 1)
        tensors[f"{name}/weight"] = weight
        gradients = torch.autograd.grad((weight * output).sum(),
                                        [inputs[i] for i in wanted])
        for i, gradient in zip(wanted, gradients):
            tensors[f"{name}/gradient{i}"] = gradient


def add_optimizer_cases(tensors):
    """Three updates each: input0 the parameter, input1..3 its gradients."""
    for name, make in {
            "sgd": lambda p: torch.optim.SGD(p, 0.125, weight_decay=0.01),
            "sgd_nesterov": lambda p: torch.optim.SGD(
                p, 0.125, momentum=0.9, nesterov=True),
            "adam": lambda p: torch.optim.Adam(p, 0.0078125),
            "adamw": lambda p: torch.optim.AdamW(p, 0.0078125, weight_decay=0.1),
            "adam_clipped": lambda p: torch.optim.Adam(p, 0.0078125)}.items():
        p = normal(4, 3)
        gradients = [normal(4, 3) for _ in range(3)]
        tensors[f"optimizer/{name}/input0"] = p.clone()
        p.requires_grad_()
        optimizer = make([p])
        for i, gradient in enumerate(gradients):
            tensors[f"optimizer/{name}/input{i + 1}"] = gradient
            p.grad = gradient.clone()
            if name == "adam_clipped":
                torch.nn.utils.clip_grad_norm_([p], 1.0)
            optimizer.step()
        tensors[f"optimizer/{name}/output"] = p.detach()


def d4pg(workload):
    torch.manual_seed(D4PG_SEED)
    learner = torch_d4pg.Learner(workload, torch.float64)
    learner.keep_gradients = True
    names = dict(learner.agent.named_parameters())
    # targets that differ from the online networks show a mistaken one for the
    # other
    with torch.no_grad():
        for name, p in names.items():
            if name.startswith("target."):
                p.add_(0.05 * torch.randn_like(p))
    tensors = {f"variables/{n}": p.detach().clone() for n, p in names.items()}

    generator = torch.Generator().manual_seed(D4PG_SEED)
    num_steps = REPRESENTATION_STEPS if torch_d4pg.horizon_of(workload) else STEPS
    batches = [torch_d4pg.random_batch(workload, torch.float64, generator)
               for _ in range(num_steps)]
    steps, expected = {}, {}
    for step, batch in enumerate(batches):
        for name, value in learner.step(*batch).items():
            group = "losses" if name.endswith("loss") else "steps"
            steps.setdefault(f"{group}/{name}", []).append(value)
        if step == 0:
            for name, gradient in learner.gradients.items():
                expected[f"gradients/{name}"] = gradient
    for i, name in enumerate(torch_d4pg.batch_names(workload)):
        tensors[f"batches/{name}"] = torch.stack([b[i] for b in batches])
    for name, values in steps.items():
        expected[name] = torch.stack(values)
    for name, p in names.items():
        expected[f"variables/{name}"] = p.detach()
    return tensors, expected


# The small tensors of a model's state; losses and logits depend on the others.
LARGEST_EXPECTED_VARIABLE = 600


def model(workload, module, seed):
    """Inputs and outputs of workload_probe for an image model."""
    torch.manual_seed(seed)
    learner = module.Learner(workload, torch.float64)
    learner.keep_gradients = True
    network = learner.network
    with torch.no_grad():
        for name, p in network.state_dict().items():
            # scales of 1 and offsets of 0 would hide mistakes
            if not p.is_floating_point():
                continue
            if "norm" in name or "bn" in name:
                p.add_(0.2 * torch.rand_like(p))
            # blocks of three layers add little to their shortcut: else 53 norms
            # blow rounding errors up until some ReLU's input changes its sign
            if name.endswith("bn3.weight"):
                p.mul_(0.125)
            # numbers that f32 holds, so that every type starts from the same
            p.copy_(p.float())
    tensors = {f"variables/{n}": p.float().clone()
               for n, p in network.state_dict().items()
               if p.is_floating_point()}
    generator = torch.Generator().manual_seed(seed)
    batches = [module.random_batch(workload, generator) for _ in range(2)]
    steps, expected = {}, {}
    for step in range(STEPS):
        outputs = learner.step(**batches[step % 2])
        for name, value in outputs.items():
            steps.setdefault(name, []).append(value.double())
        if step == 0:
            for name, gradient in learner.gradients.items():
                expected[f"gradients/{name}"] = gradient
    for name in batches[0]:
        stacked = torch.stack([b[name] for b in batches])
        tensors[f"batches/{name}"] = (
            stacked.int() if stacked.dtype == torch.int64 else stacked)
    for name, values in steps.items():
        expected[name] = torch.stack(values)
    for name, p in network.state_dict().items():
        if p.is_floating_point() and p.numel() <= LARGEST_EXPECTED_VARIABLE:
            expected[f"variables/{name}"] = p.detach()
    for name, value in module.evaluate(network.eval(), batches[0]).items():
        expected[f"evaluation/{name}"] = value.detach()
    return tensors, expected


def losses(name, dtype, autocast):
    """The losses of BF16_STEPS steps from NAME.safetensors, by name."""
    workload = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    tensors = load_file(FOLDER / f"{name}.safetensors")
    variables = {n.removeprefix("variables/"): t for n, t in tensors.items()
                 if n.startswith("variables/")}
    batches = {n.removeprefix("batches/"):
               t.to(dtype) if t.is_floating_point() else
               t.long() if t.dtype == torch.int32 else t
               for n, t in tensors.items() if n.startswith("batches/")}
    module = MODULES[name.split("_")[0]]
    learner = module.Learner(workload, dtype, autocast=autocast)
    is_d4pg = module is torch_d4pg
    (learner.agent if is_d4pg else learner.network).load_state_dict(
        variables, strict=False)
    series = {}
    for step in range(BF16_STEPS):
        batch = {n: t[step % len(t)] for n, t in batches.items()}
        outputs = (learner.step(*(batch[n] for n in torch_d4pg.batch_names(workload)))
                   if is_d4pg else learner.step(**batch))
        for key, value in outputs.items():
            if key.endswith("loss"):
                series.setdefault(key.removeprefix("losses/"), []).append(
                    value.double())
    return {n: torch.stack(values) for n, values in series.items()}


MODULES = {"d4pg": torch_d4pg, "resnet50": torch_resnet50, "sngan": torch_sngan}


def save_bf16_losses():
    tensors = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for kind, dtype, autocast in (("f64", torch.float64, False),
                                      ("autocast", torch.float32, True)):
            tensors |= {f"{path.stem}/{kind}/{n}": t for n, t in
                        losses(path.stem, dtype, autocast).items()}
    save("bf16_losses", tensors)


def save(name, tensors):
    tensors = {n: t.clone(memory_format=torch.contiguous_format) for n, t in tensors.items()}
    path = FOLDER / f"{name}.safetensors"
    save_file(tensors, path)
    path.chmod(0o644)
    print(path.name, path.stat().st_size)


def save_d4pg(path):
    tensors, expected = d4pg(yaml.safe_load(path.read_text()))
    save(path.stem, tensors)
    save(f"{path.stem}.expected", expected)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if sys.argv[1:] == ["bf16"]:
        save_bf16_losses()
        return
    if sys.argv[1:]:
        save_d4pg(FOLDER / f"{sys.argv[1]}.yaml")
        return
    torch.manual_seed(OPS_SEED)
    tensors = {}
    add_op_cases(tensors, cases())
    add_optimizer_cases(tensors)
    add_op_cases(tensors, model_cases())
    save("ops", tensors)
    for path in sorted(FOLDER.glob("d4pg_*.yaml")):
        save_d4pg(path)
    for name, module in {"resnet50": torch_resnet50, "sngan": torch_sngan}.items():
        for path in sorted(FOLDER.glob(f"{name}_*.yaml")):
            workload = yaml.safe_load(path.read_text())
            # a seed whose network does not amplify rounding errors
            tensors, expected = model(workload, module,
                                      MODELS_SEED + workload["seed"])
            save(path.stem, tensors)
            save(f"{path.stem}.expected", expected)
    save_bf16_losses()
    manifest = {"made by": "scripts/goldens/make_torch.py",
                "torch": torch.__version__.split("+")[0],
                "dtype": "float64", "ops seed": OPS_SEED,
                "d4pg seed": D4PG_SEED, "models seed": MODELS_SEED,
                "steps": STEPS,
                "representation steps": REPRESENTATION_STEPS,
                "bf16 steps": BF16_STEPS}
    (FOLDER / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
