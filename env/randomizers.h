#pragma once

#include <array>
#include <functional>
#include <span>

#include "base/rng.h"
#include "env/physics.h"

namespace replicant::env {

// Draws a direction, uniform on the sphere of v.size() - 1 dimensions, by
// normalising normal numbers. One draw per element.
void RandomDirection(RandomStream& random, std::span<double> v);

// The quaternion of a rotation by `angle` about z.
std::array<double, 4> AzimuthQuaternion(double angle);

// Draws a position for every joint, in joint order, as dm_control does:
//
//   limited hinge or slide   uniform in its range
//   unlimited hinge          uniform in [-pi, pi)
//   unlimited slide          stays
//   limited ball             random axis, angle uniform in [0, upper limit)
//   unlimited ball           uniform rotation
//   free                     position stays; rotation: four uniform numbers in
//                            [0, 1), normalised (not uniform; dm_control keeps
//                            it so that results stay comparable)
//
// Derived quantities are not updated.
void RandomizeJoints(Physics& physics, RandomStream& random);

// Calls `draw` until the model has no contacts, at most `max_attempts` times;
// the derived quantities are then up to date (actuation off). Throws Error if
// every attempt has contacts.
void DrawUntilNoContact(Physics& physics, int max_attempts,
                        const std::function<void()>& draw);

}  // namespace replicant::env
