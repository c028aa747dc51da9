#include "env/tasks/suite.h"

#include <iterator>
#include <utility>

#include "env/tasks/acrobot.h"
#include "env/tasks/ball_in_cup.h"
#include "env/tasks/cartpole.h"
#include "env/tasks/cheetah.h"
#include "env/tasks/dog.h"
#include "env/tasks/finger.h"
#include "env/tasks/fish.h"
#include "env/tasks/hopper.h"
#include "env/tasks/humanoid.h"
#include "env/tasks/lqr.h"
#include "env/tasks/manipulator.h"
#include "env/tasks/pendulum.h"
#include "env/tasks/point_mass.h"
#include "env/tasks/quadruped.h"
#include "env/tasks/reacher.h"
#include "env/tasks/stacker.h"
#include "env/tasks/swimmer.h"
#include "env/tasks/walker.h"

namespace replicant::env {

std::vector<TaskDefinition> SuiteTasks() {
  std::vector<TaskDefinition> all;
  for (auto* domain :
       {AcrobotTasks, BallInCupTasks, CartpoleTasks, CheetahTasks, DogTasks,
        FingerTasks, FishTasks, HopperTasks, HumanoidTasks, HumanoidCmuTasks,
        LqrTasks, ManipulatorTasks, PendulumTasks, PointMassTasks,
        QuadrupedTasks, ReacherTasks, StackerTasks, SwimmerTasks,
        WalkerTasks}) {
    std::vector<TaskDefinition> tasks = domain();
    all.insert(all.end(), std::make_move_iterator(tasks.begin()),
               std::make_move_iterator(tasks.end()));
  }
  for (TaskDefinition& task : all) task.options.is_of_suite = true;
  return all;
}

}  // namespace replicant::env
