// replicant._program: every program of a run inside the interpreter, and
// configurations as they read them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "base/config/document.h"
#include "programs/program.h"
#include "programs/run/run_config.h"
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

// A map as a dictionary, and each value as its text.
nb::object ToPython(const config::Node& node) {
  switch (node.kind) {
    case config::Node::Kind::kNull:
      return nb::none();
    case config::Node::Kind::kScalar:
      return nb::str(node.text.data(), node.text.size());
    case config::Node::Kind::kList: {
      nb::list items;
      for (const config::Node& item : node.items) items.append(ToPython(item));
      return items;
    }
    case config::Node::Kind::kMap:
      break;
  }
  nb::dict entries;
  for (const config::Node::Entry& entry : node.entries) {
    entries[entry.key.c_str()] = ToPython(entry.value);
  }
  return entries;
}

nb::object ReadConfig(const std::string& file,
                      const std::vector<std::string>& settings) {
  config::Document document = config::Document::FromFile(file, settings);
  programs::MakePathsAbsolute(document, programs::Registry::BuiltIn());
  return ToPython(document.root());
}

}  // namespace
}  // namespace replicant::python

NB_MODULE(_program, module) {
  replicant::python::TranslateErrors();
  module.def(
      "run", &replicant::python::Run, nanobind::arg("words"),
      nanobind::arg("command"), nanobind::arg("task"),
      nanobind::arg("make_adapter").none(),
      "Runs the program that the words name, and returns its exit code.");
  module.def(
      "read_config", &replicant::python::ReadConfig, nanobind::arg("file"),
      nanobind::arg("settings"),
      "The configuration of a file, its bases and settings, KEY=VALUE as --set "
      "takes them, before its values are checked: dictionaries and lists of "
      "texts, None for no value. Paths of models and data are absolute.");
}
