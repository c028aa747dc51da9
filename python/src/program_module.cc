// replicant._program: every program of a run inside the interpreter.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "programs/program.h"
#include "python/src/module.h"
#include "python/src/python_environment.h"

namespace replicant::python {
namespace nb = nanobind;
namespace {

int Run(std::vector<std::string> words, const std::vector<std::string>& command,
        const std::string& task, const nb::object& make_adapter) {
  auto registry = programs::Registry::BuiltIn();
  if (!make_adapter.is_none()) {
    registry.tasks.Add(DefinePythonEnvironment(task, make_adapter));
  }
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  GilRelease release;
  return programs::RunProgram(static_cast<int>(words.size()), argv.data(),
                              registry, command);
}

}  // namespace
}  // namespace replicant::python

NB_MODULE(_program, module) {
  module.def(
      "run", &replicant::python::Run, nanobind::arg("words"),
      nanobind::arg("command"), nanobind::arg("task"),
      nanobind::arg("make_adapter").none(),
      "Runs the program that the words name, and returns its exit code.");
}
