// MuJoCo offers no list of the files that a model reads, and saves a model with
// rounded numbers. So the XML itself is read: includes are replaced by their
// contents, every asset is copied, and its attribute names the copy.
//
// Files are searched as MuJoCo 3.17 does, for a main file with an absolute path
// (docs: XMLreference, "file paths"; the rest was observed by strace):
//
//   include     MAIN/name, else FOLDER/name
//   asset       the name stays if SEARCHED/name exists, else it becomes
//               FOLDER/name within an include; strippath then cuts its folders;
//               COMPILED/name is read
//   submodel    like an asset, but "exists" asks the working folder, strippath
//               is ignored and MAIN/name is read
//
// MAIN is the main file's folder and FOLDER the including file's. SEARCHED and
// COMPILED are folders of the compiler element, below MAIN (FoldersOf()).
#include "env/model_copy.h"

#include <fmt/format.h>
#include <tinyxml2.h>

#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "env/model_path.h"

namespace replicant::env {
namespace {

using tinyxml2::XMLElement;
using tinyxml2::XMLNode;
namespace stdfs = std::filesystem;

// Attribute that keeps the folder of an included element's file until the
// document is saved.
constexpr const char* kFolder = "replicant_folder";
// Far more levels than any model has; only a file that includes itself exceeds
// it.
constexpr int kMaxDepth = 32;

// Attributes with a file's name; "filename" is a URDF's.
constexpr const char* kFileAttributes[] = {"file",     "fileright", "fileleft",
                                           "fileup",   "filedown",  "filefront",
                                           "fileback", "filename"};

void Load(const stdfs::path& path, tinyxml2::XMLDocument* document) {
  std::error_code ignored;
  if (!stdfs::is_regular_file(path, ignored)) {
    throw IoError(fmt::format("MJCF: {}: no such file", path.string()));
  }
  if (document->LoadFile(path.c_str()) != tinyxml2::XML_SUCCESS ||
      document->RootElement() == nullptr) {
    throw IoError(
        fmt::format("MJCF: {}: {}", path.string(), document->ErrorStr()));
  }
}

template <typename Visit>
void ForEach(XMLElement* element, const Visit& visit) {
  visit(element);
  for (XMLElement* child = element->FirstChildElement(); child != nullptr;
       child = child->NextSiblingElement()) {
    ForEach(child, visit);
  }
}

// Replaces the includes below `element` by the files that they name. `folder`
// is the folder of the element's file.
void ReplaceIncludes(XMLElement* element, const stdfs::path& main_folder,
                     const stdfs::path& folder, int depth) {
  if (depth > kMaxDepth) {
    throw IoError(fmt::format("MJCF: {}: includes more than {} levels deep",
                              folder.string(), kMaxDepth));
  }
  XMLElement* child = element->FirstChildElement();
  while (child != nullptr) {
    XMLElement* const next = child->NextSiblingElement();
    if (std::string_view(child->Name()) != "include") {
      if (depth > 0) child->SetAttribute(kFolder, folder.c_str());
      ReplaceIncludes(child, main_folder, folder, depth);
      child = next;
      continue;
    }
    const char* const name = child->Attribute("file");
    if (name == nullptr) {
      throw IoError(
          fmt::format("MJCF: {}: an include names no file", folder.string()));
    }
    stdfs::path file = MujocoPath(main_folder / MujocoPath(name));
    if (!stdfs::is_regular_file(file)) {
      file = MujocoPath(folder / MujocoPath(name));
    }
    tinyxml2::XMLDocument included;
    Load(file, &included);
    ReplaceIncludes(included.RootElement(), main_folder, file.parent_path(),
                    depth + 1);
    XMLNode* last = child;
    for (const XMLNode* node = included.RootElement()->FirstChild();
         node != nullptr; node = node->NextSibling()) {
      last = element->InsertAfterChild(last,
                                       node->DeepClone(element->GetDocument()));
    }
    element->DeleteChild(child);
    child = next;
  }
}

// The compiler's settings of files.
struct CompilerPaths {
  stdfs::path assets;
  stdfs::path meshes;
  stdfs::path textures;
  bool strips_folders = false;  // strippath
};

// Takes them out of the document; the last compiler element wins.
CompilerPaths TakeCompilerPaths(XMLElement* root) {
  CompilerPaths paths;
  ForEach(root, [&paths](XMLElement* element) {
    if (std::string_view(element->Name()) != "compiler") return;
    const auto take = [&](const char* name, auto use) {
      if (const char* value = element->Attribute(name)) use(value);
      element->DeleteAttribute(name);
    };
    take("assetdir", [&](const char* value) {
      paths.assets = paths.meshes = paths.textures = MujocoPath(value);
    });
    take("meshdir",
         [&](const char* value) { paths.meshes = MujocoPath(value); });
    take("texturedir",
         [&](const char* value) { paths.textures = MujocoPath(value); });
    take("strippath", [&](std::string_view value) {
      paths.strips_folders = value == "true";
    });
  });
  return paths;
}

// The folders, below the main file's, of one kind of asset.
struct AssetFolders {
  stdfs::path searched;
  stdfs::path compiled;
};

AssetFolders FoldersOf(std::string_view kind, const CompilerPaths& paths) {
  if (kind == "mesh") return {paths.meshes, paths.meshes};
  if (kind == "texture") return {paths.textures, paths.textures};
  if (kind == "flexcomp") return {{}, paths.meshes};
  return {paths.assets, paths.meshes};  // hfield, skin
}

// Returns the file that MuJoCo reads for the name `value` of an asset or
// submodel.
stdfs::path FileOf(const XMLElement& element, const char* value,
                   const stdfs::path& main_folder, const CompilerPaths& paths) {
  const std::string_view kind = element.Name();
  const bool is_model = kind == "model";
  const AssetFolders folders =
      is_model ? AssetFolders{} : FoldersOf(kind, paths);
  const stdfs::path searched =
      is_model ? stdfs::current_path() : main_folder / folders.searched;
  stdfs::path name = MujocoPath(value);
  const char* const folder = element.Attribute(kFolder);
  if (folder != nullptr &&
      !stdfs::is_regular_file(MujocoPath(searched / name))) {
    name = folder / name;
  }
  if (paths.strips_folders && !is_model) name = name.filename();
  return MujocoPath(main_folder / folders.compiled / name);
}

void CopyXml(const stdfs::path& xml, const stdfs::path& copy);

// Copies the files of one model, each once under each of its names.
class AssetCopies {
 public:
  explicit AssetCopies(stdfs::path folder) : folder_(std::move(folder)) {}

  // Returns the name of the copy relative to the folder. The copy keeps the
  // name of its file, after which MuJoCo names an asset.
  std::string Copy(const stdfs::path& file, bool is_model) {
    std::string& name =
        names_[{stdfs::weakly_canonical(file), file.filename()}];
    if (!name.empty()) return name;
    name = fmt::format("assets/{}/{}", names_.size() - 1,
                       file.filename().string());
    if (is_model && !IsModelArchive(file)) {
      CopyXml(file, folder_ / name);
    } else {
      CopyFile(file, folder_ / name);
    }
    return name;
  }

  static void CopyFile(const stdfs::path& file, const stdfs::path& copy) {
    MakeFolders(copy.parent_path());
    std::error_code error;
    stdfs::copy_file(file, copy, error);
    if (error) throw IoError::FromErrno("cannot copy", file, error.value());
  }

 private:
  const stdfs::path folder_;
  std::map<std::pair<stdfs::path, stdfs::path>, std::string> names_;
};

// Copies the files of one element and makes its attributes name the copies. A
// name without a file stays: MuJoCo does not read it, as with a URDF's
// discarded visuals, or does not compile the model.
void CopyFiles(XMLElement* element, const stdfs::path& main_folder,
               const CompilerPaths& paths, AssetCopies* copies) {
  const bool is_model = std::string_view(element->Name()) == "model";
  for (const char* attribute : kFileAttributes) {
    const char* const value = element->Attribute(attribute);
    if (value == nullptr || *value == '\0') continue;
    const stdfs::path file = FileOf(*element, value, main_folder, paths);
    if (!stdfs::is_regular_file(file)) continue;
    element->SetAttribute(attribute, copies->Copy(file, is_model).c_str());
  }
}

// Copies the XML file of a model to `copy`, with its assets next to it.
void CopyXml(const stdfs::path& xml, const stdfs::path& copy) {
  tinyxml2::XMLDocument document;
  Load(xml, &document);
  const stdfs::path main_folder = xml.parent_path();
  XMLElement* const root = document.RootElement();
  ReplaceIncludes(root, main_folder, main_folder, /*depth=*/0);
  const CompilerPaths paths = TakeCompilerPaths(root);
  MakeFolders(copy.parent_path());
  AssetCopies copies(copy.parent_path());
  ForEach(root, [&](XMLElement* element) {
    CopyFiles(element, main_folder, paths, &copies);
    element->DeleteAttribute(kFolder);
  });
  tinyxml2::XMLPrinter printer;
  document.Print(&printer);
  AtomicWriteFile(copy, printer.CStr());
}

}  // namespace

stdfs::path CopyMjcf(const stdfs::path& mjcf, const stdfs::path& folder) {
  const stdfs::path file = MujocoPath(stdfs::absolute(mjcf));
  stdfs::path copy = CopyOfMjcf(mjcf, folder);
  if (IsModelArchive(file)) {
    AssetCopies::CopyFile(file, copy);
  } else {
    CopyXml(file, copy);
  }
  return copy;
}

stdfs::path CopyOfMjcf(const stdfs::path& mjcf, const stdfs::path& folder) {
  const stdfs::path file = MujocoPath(stdfs::absolute(mjcf));
  // the model's name within an archive may be the archive's
  return folder / (IsModelArchive(file) ? file.filename() : "model.xml");
}

}  // namespace replicant::env
