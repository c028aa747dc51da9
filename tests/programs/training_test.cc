// The program `fleet` with the real roles: whole trainings, seconds long.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/fs.h"
#include "base/process.h"
#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class TrainingTest : public TrainingFixture {};

// A run without actors: the learner's processes alone, to the same end on every
// strategy.
TEST_F(TrainingTest, TrainsImageModelsOnReplicas) {
  for (const char* recipe : {"resnet18_synthetic", "sngan32_synthetic"}) {
    for (const char* replication : {
           "{strategy: single}", "{strategy: in_graph, replicas: 2}"
#if REPLICANT_MPI
               ,
               "{strategy: between_graph, replicas: 2}",
               "{strategy: between_graph, replicas: 4, replicas_per_process: 2}"
#endif
         }) {
      const CommandResult result = RunCommand(
          {.command = {REPLICANT_FLEET, "--config",
                       fmt::format("{}/configs/{}.yaml", REPLICANT_SOURCE_DIR,
                                   recipe),
                       "--set", "run.dir=" + run_.string(), "--set",
                       fmt::format("learner.replication={}", replication),
                       "--set", "learner.limits.max_steps=4", "--set",
                       "learner.batch_size=8", "--set", "resnet50.width=4",
                       "--set", "sngan.generator_channels=4", "--set",
                       "sngan.discriminator_channels=4"}},
          std::chrono::minutes(3));
      EXPECT_TRUE(result.status.ok()) << result.output;
      EXPECT_THAT(result.output, HasSubstr("workload"));
      EXPECT_THAT(result.output, Not(HasSubstr("to evaluate")));
      EXPECT_TRUE(std::filesystem::exists(
          run_ / "checkpoints/step-000000000004/variables.safetensors"))
          << recipe << ", " << replication;
      EXPECT_FALSE(std::filesystem::exists(run_ / "logs" / "actor-0.1.log"));
      const auto resume = [this](const std::string& setting) {
        return RunCommand(
            {.command = {REPLICANT_FLEET, "--resume", run_.string(), "--set",
                         "learner.limits.max_steps=5", "--set", setting}},
            std::chrono::minutes(3));
      };
      // images are counted in batches
      EXPECT_THAT(resume("learner.batch_size=4").output,
                  HasSubstr("learner.batch_size: 4, but the run in "));
      const CommandResult resumed = resume("log.level=info");
      EXPECT_TRUE(resumed.status.ok()) << resumed.output;
      std::filesystem::remove_all(run_);
    }
  }
}

TEST_F(TrainingTest, TrainsAndLeavesAFolder) {
  const CommandResult result = RunFleet({});
  EXPECT_TRUE(result.status.ok()) << result.output;
  for (const char* name :
       {"config.yaml", "run.yaml", "learner.jsonl", "curve.png",
        "checkpoints/step-000000000050/variables.safetensors"}) {
    EXPECT_TRUE(std::filesystem::exists(run_ / name)) << name;
  }
  EXPECT_THAT(ReadFile(run_ / "logs" / "actor-0.1.log"),
              HasSubstr("ends after"));
  EXPECT_FALSE(std::filesystem::is_empty(run_ / "replay"));

  // the last policy was tried out, and filmed
  ASSERT_FALSE(Evaluations().empty()) << result.output;
  EXPECT_THAT(
      Evaluations().back(),
      MatchesRegex(".*\"step\":50,\"frames\":[0-9]+,\"episodes\":2,.*"));
  const auto video = run_ / "videos" / "step-000000000050.mp4";
  // 1000 control steps, 8 at a time
  EXPECT_EQ(Describe(video), "32,24,126\n");
  for (const std::string& row :
       {std::string("task                cartpole-swingup from state\n"),
        std::string("status              complete: learner-0 has completed the "
                    "run: step limit\n"),
        std::string("updates             50 ("),
        std::string("samples per insert  "),
        std::string("last return         "),
        std::string("(2 episodes) at step 50, "),
        "learning curve      " + run_.string() + "/curve.png\n",
        "video               " + video.string() + "\n",
        "/fleet --resume " + run_.string() + "\n",
        "/evaluator --checkpoint " + run_.string() +
            " --episodes 2 --video\n"}) {
    EXPECT_THAT(result.output, HasSubstr(row));
  }
}

// Would catch a report that names every key of the run as changed.
TEST_F(TrainingTest, TheRecipeIsTheConfigurationBeforeSettings) {
  const std::filesystem::path file = folder_.path() / "small.yaml";
  AtomicWriteFile(file, fmt::format("base: {}/configs/resnet18_synthetic.yaml\n"
                                    "learner: {{batch_size: 8}}\n"
                                    "resnet50: {{width: 4}}\n",
                                    REPLICANT_SOURCE_DIR));
  const auto train = [&](const std::string& config) {
    std::filesystem::remove_all(run_);
    // the shell makes the pipe
    const CommandResult result = RunCommand(
        {.command = {"bash", "-c",
                     "exec \"$0\" --config " + config +
                         " --set learner.limits.max_steps=1 --set run.dir=$2",
                     REPLICANT_FLEET, file.string(), run_.string()}},
        std::chrono::minutes(3));
    EXPECT_TRUE(result.status.ok()) << result.output;
    EXPECT_THAT(ReadFile(run_ / "config.yaml"), HasSubstr("max_steps: 1\n"));
  };
  train("$1");
  const std::string recipe = ReadFile(run_ / "recipe.yaml");
  EXPECT_THAT(recipe, HasSubstr("max_steps: 0\n"));
  EXPECT_THAT(recipe, HasSubstr("batch_size: 8\n"));
  // which can be read only once
  train("<(cat $1)");
  EXPECT_FALSE(std::filesystem::exists(run_ / "recipe.yaml"));
}

// The learner's reader takes windows where the table has them.
TEST_F(TrainingTest, TrainsAnEmbeddingThatPredicts) {
  const CommandResult result = RunFleet(
      {"evaluation.enabled=false", "agent.networks.shared_embedding=true",
       "agent.representation.horizon=3", "replay.tables.default.window=3"});
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output, HasSubstr("updates             50 ("));
}

TEST_F(TrainingTest, TrainsOnReplicasInOneProcess) {
  const CommandResult result =
      RunFleet({"evaluation.enabled=false",
                "learner.replication={strategy: in_graph, replicas: 2}"});
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output, HasSubstr("updates             50 ("));
}

TEST_F(TrainingTest, TrainsFromPixelsOnReplicas) {
  for (const char* recipe : {
         "cartpole_swingup_pixels_in_graph"
#if REPLICANT_MPI
             ,
             "cartpole_swingup_pixels_mpi"
#endif
       }) {
    const CommandResult result = RunCommand(
        {.command =
             Command({"evaluation.enabled=false", "learner.limits.max_steps=4",
                      "learner.batch_size=8", "agent.random_shift=2",
                      "task.pixels.height=32", "task.pixels.width=32",
                      "task.pixels.frame_stack=2"},
                     recipe)},
        std::chrono::minutes(3));
    EXPECT_TRUE(result.status.ok()) << result.output;
    EXPECT_THAT(result.output, HasSubstr("from pixels, 32x32, 2 frames"));
    EXPECT_THAT(result.output, HasSubstr("updates             4 ("));
    std::filesystem::remove_all(run_);
  }
}

// Through replay, inference server, learner and evaluator.
TEST_F(TrainingTest, TrainsFromPixelsAndTheStateBesideThem) {
  const CommandResult result = RunCommand(
      {.command = Command({"learner.limits.max_steps=4", "learner.batch_size=8",
                           "task.pixels.height=32", "task.pixels.width=32",
                           "task.pixels.state=true", "actors.inference=host",
                           "actors.exploration.initial_hold_steps=1"},
                          "cartpole_swingup_pixels")},
      std::chrono::minutes(3));
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output,
              HasSubstr("from pixels and state, 32x32, 3 frames"));
  EXPECT_THAT(result.output, HasSubstr("(2 episodes) at step 4"));
}

// A learner that no fleet has started says where it writes and what it came to.
TEST_F(TrainingTest, ALearnerAloneKeepsItsConfigurationAndSumsUp) {
  const auto learner =
      std::filesystem::path(REPLICANT_FLEET).parent_path() / "learner";
  const auto train = [&](int max_steps) {
    return RunCommand(
        {.command = {learner, "--config",
                     std::string(REPLICANT_SOURCE_DIR) +
                         "/configs/resnet18_synthetic.yaml",
                     "--set", "run.dir=" + run_.string(), "--set",
                     fmt::format("learner.limits.max_steps={}", max_steps)}},
        std::chrono::minutes(3));
  };
  const CommandResult result = train(2);
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output, HasSubstr("run folder: " + run_.string() + "\n"));
  EXPECT_THAT(result.output, HasSubstr(" steps/s, "));
  EXPECT_THAT(result.output,
              HasSubstr(" % of the time waiting for them; loss "));
  EXPECT_THAT(result.output, HasSubstr(", accuracy "));
  EXPECT_THAT(result.output, Not(HasSubstr("frames")));
  EXPECT_THAT(result.output, HasSubstr("workload            resnet50\n"
                                       "status              complete: step "
                                       "limit\n"));
  EXPECT_THAT(result.output, HasSubstr("updates             2 ("));
  EXPECT_THAT(result.output, HasSubstr("last loss "));
  EXPECT_THAT(result.output,
              HasSubstr("to resume           " + learner.string() +
                        " --config " + (run_ / "config.yaml").string() +
                        " --set run.dir=" + run_.string() + "\n"));
  EXPECT_THAT(ReadFile(run_ / "config.yaml"), HasSubstr("max_steps: 2\n"));
  EXPECT_THAT(train(3).output, HasSubstr("since step 2, where it was resumed"));
}

// Neither the images nor the other processes of the training need be where the
// model is exported.
TEST_F(TrainingTest, AModelIsExportedWithoutImagesAndReplicas) {
  const auto run = [&](const char* program, std::vector<std::string> words) {
    words.insert(
        words.begin(),
        std::filesystem::path(REPLICANT_FLEET).parent_path() / program);
    return RunCommand({.command = words}, std::chrono::minutes(3));
  };
  const std::vector<std::string> config = {
      "--config",
      std::string(REPLICANT_SOURCE_DIR) + "/configs/resnet18_synthetic.yaml",
      "--set", "run.dir=" + run_.string()};
  const auto with = [](std::vector<std::string> words,
                       const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const CommandResult trained =
      run("learner", with(config, {"--set", "learner.limits.max_steps=1"}));
  ASSERT_TRUE(trained.status.ok()) << trained.output;
  const std::vector<std::string> elsewhere = {
      "--set", "images.source=image_folder", "--set",
      "images.train=/no/such/folder"};
  const std::vector<std::string> words = {"--checkpoint", run_.string(),
                                          "--to"};
  for (const char* name : {"model.safetensors", "model.onnx", "model.mlir"}) {
    const auto model = folder_.path() / name;
    const CommandResult exported =
        run("export", with(with(words, {model.string(), "--set",
                                        "learner.replication={strategy: "
                                        "between_graph, replicas: 2}"}),
                           elsewhere));
    EXPECT_TRUE(exported.status.ok()) << exported.output;
    EXPECT_THAT(exported.output, HasSubstr("wrote " + model.string()));
    EXPECT_TRUE(std::filesystem::exists(model));
  }
  EXPECT_THAT(run("export", with(words, {"model.pt"})).output,
              HasSubstr("--to: got 'model.pt', want a file .safetensors, "
                        ".onnx or .mlir"));
  // a checkpoint is not overwritten by its own model
  const auto own = run_ / "checkpoints/step-000000000001/variables.safetensors";
  const std::string before = ReadFile(own);
  EXPECT_THAT(run("export", with(words, {own.string()})).output,
              HasSubstr("export: --to: '" + own.string() +
                        "' lies in the folder of a checkpoint, which is never "
                        "overwritten; want a file in another folder"));
  EXPECT_TRUE(ReadFile(own) == before);
  // nor is a configuration by the description of a model, which stands beside
  // it; an older description is
  AtomicWriteFile(folder_.path() / "own.yaml", "learner: {}\n");
  EXPECT_THAT(
      run("export",
          with(words, {(folder_.path() / "own.safetensors").string()}))
          .output,
      HasSubstr("own.yaml' exists and is not a description of a model"));
  EXPECT_EQ(ReadFile(folder_.path() / "own.yaml"), "learner: {}\n");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "own.safetensors"));
  EXPECT_TRUE(
      run("export",
          with(words, {(folder_.path() / "model.safetensors").string()}))
          .status.ok());
  // the training step is for all replicas, with the checkpoint's values
  EXPECT_THAT(ReadFile(folder_.path() / "model.mlir"),
              HasSubstr("mhlo.num_replicas = 2 : i32"));
  EXPECT_THAT(ReadFile(folder_.path() / "model.mlir.json"),
              HasSubstr("\"num_replicas\": 2"));
  const auto values = folder_.path() / "model.mlir.safetensors";
  EXPECT_THAT(ReadFile(values), HasSubstr("\"optimizer/"));
  // a training does need them
  EXPECT_THAT(run("learner", with(config, elsewhere)).output,
              HasSubstr("/no/such/folder"));
}

// A classifier gives the features by which generated images are judged; any
// checkpoint can be evaluated.
TEST_F(TrainingTest, ImageModelsAreEvaluatedByTheirCheckpoints) {
  const auto learner = [&](const std::vector<std::string>& words) {
    std::vector<std::string> command = {
        std::filesystem::path(REPLICANT_FLEET).parent_path() / "learner"};
    command.insert(command.end(), words.begin(), words.end());
    return RunCommand({.command = command}, std::chrono::minutes(5));
  };
  const auto train = [&](const char* config, const std::filesystem::path& run,
                         const std::vector<std::string>& settings) {
    std::vector<std::string> words = {
        "--config", std::string(REPLICANT_SOURCE_DIR) + "/configs/" + config,
        "--set", "run.dir=" + run.string()};
    for (const std::string& setting : settings) {
      words.insert(words.end(), {"--set", setting});
    }
    return learner(words);
  };
  const auto classifier = folder_.path() / "classifier";
  const CommandResult trained = train(
      "resnet18_rendered.yaml", classifier,
      {"images={num_train: 36, num_evaluation: 20}",
       "resnet50={width: 4, image_size: 32, stem: small}",
       "learner={batch_size: 4, limits: {max_steps: 0, max_epochs: 0.5}}"});
  ASSERT_TRUE(trained.status.ok()) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("complete: epoch limit"));
  EXPECT_THAT(trained.output, HasSubstr("; epoch 0."));
  EXPECT_TRUE(std::filesystem::exists(classifier / "batch"));
  const auto weights = folder_.path() / "features.safetensors";
  const CommandResult evaluated = learner({"--evaluate", classifier});
  EXPECT_TRUE(evaluated.status.ok()) << evaluated.output;
  EXPECT_THAT(evaluated.output, HasSubstr("/checkpoints/step-000000000005\n"));
  EXPECT_THAT(evaluated.output, HasSubstr("evaluation_images 20\n"));
  const CommandResult exported = RunCommand(
      {.command = {std::filesystem::path(REPLICANT_FLEET).parent_path() /
                       "export",
                   "--checkpoint", classifier, "--to", weights}},
      std::chrono::minutes(5));
  EXPECT_TRUE(exported.status.ok()) << exported.output;
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "features.yaml"));

  const CommandResult generated =
      train("sngan32_rendered.yaml", run_,
            {"images.num_train=36", "learner.batch_size=4",
             "learner.limits.max_steps=4",
             "sngan={generator_channels: 4, discriminator_channels: 4, "
             "sample_interval_steps: 0}"});
  ASSERT_TRUE(generated.status.ok()) << generated.output;
  const CommandResult nothing = learner({"--evaluate", run_});
  EXPECT_FALSE(nothing.status.ok());
  EXPECT_THAT(nothing.output,
              HasSubstr("sngan needs sngan.evaluation_features"));
  const CommandResult scores =
      learner({"--evaluate", run_ / "checkpoints" / "step-000000000004",
               "--set", "sngan.evaluation_features=" + weights.string()});
  EXPECT_TRUE(scores.status.ok()) << scores.output;
  EXPECT_THAT(scores.output, HasSubstr("evaluation_fid "));
  EXPECT_THAT(scores.output, HasSubstr("evaluation_inception_score "));
  EXPECT_THAT(scores.output, HasSubstr("evaluation_images 36\n"));
}

// Two learners would mix their checkpoints and curves.
TEST_F(TrainingTest, ASecondLearnerInAFolderIsRefused) {
  const auto command = [&](int max_steps) {
    return std::vector<std::string>{
        std::filesystem::path(REPLICANT_FLEET).parent_path() / "learner",
        "--config",
        std::string(REPLICANT_SOURCE_DIR) + "/configs/resnet18_synthetic.yaml",
        "--set",
        "run.dir=" + run_.string(),
        "--set",
        fmt::format("learner.limits.max_steps={}", max_steps)};
  };
  const auto output = folder_.path() / "out";
  Process first(
      {.command = command(0), .stdout_file = output, .stderr_file = output});
  ASSERT_TRUE(AwaitFile(output, "run folder: ")) << Output();
  const CommandResult second =
      RunCommand({.command = command(1)}, std::chrono::minutes(3));
  EXPECT_EQ(second.status.code, 1) << second.output;
  EXPECT_THAT(
      second.output,
      HasSubstr(
          "run folder " + run_.string() +
          ": another fleet or learner is running in it: in use by process "));
  EXPECT_THAT(second.output, HasSubstr(fmt::format("/{}\n", first.pid())));
  // a learner that is killed leaves no lock behind
  first.Signal(SIGKILL);
  ASSERT_TRUE(first.Wait(std::chrono::minutes(3)));
  const CommandResult third =
      RunCommand({.command = command(1)}, std::chrono::minutes(3));
  EXPECT_TRUE(third.status.ok()) << third.output;
}

// The policy of a run can be used without this project.
TEST_F(TrainingTest, AnotherProgramPlaysThePolicy) {
  ASSERT_TRUE(RunFleet({"evaluation.enabled=false"}).status.ok());
  const CommandResult played =
      RunCommand({.command = {REPLICANT_PYTHON,
                              std::string(REPLICANT_SOURCE_DIR) +
                                  "/examples/use_policy/play.py",
                              run_.string(), "--episodes", "2"},
                  .environment = {"MUJOCO_GL=disabled"}},
                 std::chrono::minutes(3));
  EXPECT_TRUE(played.status.ok()) << played.output;
  const CommandResult evaluated =
      RunEvaluator({"--checkpoint", run_.string(), "--episodes", "5"});
  // episodes begin alike in this task, so few give nearly the same mean
  const auto number_behind = [](const std::string& text,
                                const std::string& label) {
    return std::stod(text.substr(text.find(label) + label.size()));
  };
  EXPECT_NEAR(number_behind(played.output, "mean   "),
              number_behind(evaluated.output, "return      "), 60.0);
}

// A user's model is found next to the YAML file and kept whole with the run,
// wherever the run is moved.
TEST_F(TrainingTest, ARunKeepsItsModel) {
  const std::filesystem::path suite = REPLICANT_SUITE;
  const auto mine = folder_.path() / "mine";
  std::filesystem::create_directories(mine / "assets");
  for (const char* name : {"skybox.xml", "visual.xml", "materials.xml"}) {
    std::filesystem::copy_file(suite / "common" / name, mine / "assets" / name);
  }
  std::string model = ReadFile(suite / "cartpole.xml");
  for (size_t at = 0;
       (at = model.find("./common/", at)) != std::string::npos;) {
    model.replace(at, 9, "assets/");
  }
  std::ofstream(mine / "pole.xml") << model;
  std::ofstream(mine / "run.yaml")
      << "base: " << REPLICANT_SOURCE_DIR
      << "/configs/cartpole_swingup_state.yaml\ntask: {mjcf: pole.xml}\n";
  std::vector<std::string> command = Command({});
  command[2] = mine / "run.yaml";
  const CommandResult trained =
      RunCommand({.command = command}, std::chrono::minutes(3));
  ASSERT_TRUE(trained.status.ok()) << trained.output;
  EXPECT_THAT(ReadFile(run_ / "config.yaml"),
              HasSubstr("  mjcf: model/model.xml\n"));
  std::filesystem::remove_all(mine);
  const auto moved = folder_.path() / "moved";
  std::filesystem::rename(run_, moved);
  const CommandResult evaluated =
      RunEvaluator({"--checkpoint", moved.string(), "--episodes", "1"});
  EXPECT_TRUE(evaluated.status.ok()) << evaluated.output;
}

// Neither addresses nor processors of two runs on one machine need a key.
TEST_F(TrainingTest, TwoRunsSideBySideNeedNoKey) {
  Process first({.command = Command({"learner.limits.max_steps=0"}),
                 .stdout_file = folder_.path() / "out",
                 .stderr_file = folder_.path() / "out"});
  ASSERT_TRUE(AwaitFile(folder_.path() / "out", "actor-0 runs"));
  const auto other = folder_.path() / "other";
  const CommandResult second = RunFleet({"run.dir=" + other.string()});
  EXPECT_TRUE(second.status.ok()) << second.output;
  const auto replay =
      std::filesystem::path(REPLICANT_FLEET).parent_path() / "replay";
  const CommandResult status = RunCommand(
      {.command = {replay, "--status", run_}}, std::chrono::minutes(3));
  EXPECT_TRUE(status.status.ok());
  EXPECT_THAT(status.output, HasSubstr("default"));
  first.Signal(SIGINT);
  const auto ended = first.Wait(std::chrono::minutes(3));
  EXPECT_TRUE(ended && ended->ok()) << ReadFile(folder_.path() / "out");
  const CommandResult over = RunCommand({.command = {replay, "--status", run_}},
                                        std::chrono::minutes(3));
  EXPECT_EQ(over.output,
            "replay: --status " + run_.string() +
                ": the run has ended (stopped), and its replay with it\n");
}

}  // namespace
}  // namespace replicant
