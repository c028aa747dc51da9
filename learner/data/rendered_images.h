#pragma once

#include "env/task_registry.h"
#include "learner/data/images_config.h"

namespace replicant::data {

// images.source rendered: frames of the Control Suite, drawn when they are
// read, for learning without a data set. Image i shows the first task of domain
// i modulo the number of domains, which is its class, at the start of an
// episode, from a random camera of the model. `images.variation` scales random
// changes: the camera is turned around the moving parts, displaced and rolled,
// surfaces are repainted, and lights and picture vary in strength and colour.
//
// An image is a function of the seed, the split and its index. The splits draw
// from separate streams and have no image in common. `tasks` gives the domains,
// in its order: the text before the "-" of a task's name. Domains that the ray
// caster cannot draw, and those with a skin, are left out: in the Control Suite
// that is the dog, which leaves 18 classes, as in runs that began before the
// ray caster drew skins.
MakeImageSource RenderedImages(const env::TaskRegistry& tasks);

}  // namespace replicant::data
