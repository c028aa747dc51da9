#pragma once

#include "env/task_registry.h"
#include "learner/data/images_config.h"

namespace replicant::programs {

// images.source rendered: frames of the Control Suite, drawn when they are
// read, for learning without a data set. Image i shows the first task of domain
// i modulo the number of domains, which is its class, in the start of an
// episode, seen by a random camera of the model. By `images.variation` the
// camera is turned around what moves, displaced and rolled, surfaces are
// painted, and the strengths and colours of lights and picture vary.
//
// An image is a function of the seed, the split and its index. The splits have
// no image in common, since they draw from streams of their own. `tasks` gives
// the domains, in its order: the text before the "-" of a task's name. Domains
// that the ray caster cannot draw are left out: of the Control Suite the dog,
// which leaves 18 classes.
data::MakeImageSource RenderedImages(const env::TaskRegistry& tasks);

}  // namespace replicant::programs
