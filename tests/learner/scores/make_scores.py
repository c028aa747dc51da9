#!/usr/bin/env python3
"""Writes features and their scores by SciPy: make_scores.py FOLDER.

In scores.safetensors CASE_a and CASE_b are f32 [n, size]; CASE is their Frechet
distance, f64 [1], by scipy.linalg.sqrtm. probabilities is f32 [n, classes], and
inception_score its mean and deviation over 4 splits, f64 [2].
"""

import pathlib
import sys

import numpy as np
import safetensors.numpy
import scipy.linalg
import scipy.special

folder = pathlib.Path(sys.argv[1])
rng = np.random.default_rng(7)


def frechet_distance(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    covariance_a, covariance_b = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = scipy.linalg.sqrtm(covariance_a @ covariance_b).real
    return (np.sum((a.mean(0) - b.mean(0)) ** 2) + np.trace(covariance_a)
            + np.trace(covariance_b) - 2 * np.trace(root))


def features(count, size, rank, offset=0.0):
    mixed = rng.normal(size=(count, rank)) @ rng.normal(size=(rank, size))
    return (np.maximum(mixed, 0) + offset).astype(np.float32)


cases = {
    "full": (features(500, 24, 24), features(400, 24, 24)),
    "far_from_zero": (features(500, 24, 24, 100.0), features(400, 24, 24, 100.5)),
    "wide": (features(300, 128, 64), features(300, 128, 64)),
}
arrays = {}
for name, (a, b) in cases.items():
    arrays |= {f"{name}_a": a, f"{name}_b": b,
               name: np.array([frechet_distance(a, b)])}

p = scipy.special.softmax(2 * rng.normal(size=(103, 7)), axis=1).astype(np.float32)
arrays["probabilities"] = p
scores = []
for k in range(4):
    part = p[k * 103 // 4:(k + 1) * 103 // 4].astype(np.float64)
    marginal = part.mean(0, keepdims=True)
    scores.append(np.exp(scipy.special.rel_entr(part, marginal).sum(1).mean()))
arrays["inception_score"] = np.array([np.mean(scores), np.std(scores)])
safetensors.numpy.save_file(arrays, folder / "scores.safetensors")
