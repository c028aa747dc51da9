// MuJoCo offers no list of the files that a model reads, and saves a model with
// rounded numbers. So the XML itself is read: includes are replaced by their
// contents, every asset is copied, and its attribute names the copy.
#include "env/model_copy.h"

#include <fmt/format.h>
#include <tinyxml2.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fs.h"

namespace replicant::env {
namespace {

using tinyxml2::XMLElement;
using tinyxml2::XMLNode;
namespace stdfs = std::filesystem;

// Attribute that keeps the folder of an element's file until the document is
// saved.
constexpr const char* kFolder = "replicant_folder";
// Far more levels than any model has; only a file that includes itself exceeds
// it.
constexpr int kMaxDepth = 32;

// Attributes with a file's name.
constexpr const char* kFileAttributes[] = {"file",     "fileright", "fileleft",
                                           "fileup",   "filedown",  "filefront",
                                           "fileback", "vertexfile"};

void Load(const stdfs::path& path, tinyxml2::XMLDocument* document) {
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

// Returns the first of the files that exists. Throws IoError if there is none.
stdfs::path FirstOf(const std::vector<stdfs::path>& files) {
  for (const stdfs::path& file : files) {
    if (stdfs::is_regular_file(file)) return file;
  }
  throw IoError(fmt::format("MJCF: {}: no such file", files.front().string()));
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
      child->SetAttribute(kFolder, folder.c_str());
      ReplaceIncludes(child, main_folder, folder, depth);
      child = next;
      continue;
    }
    const char* const name = child->Attribute("file");
    if (name == nullptr) {
      throw IoError(
          fmt::format("MJCF: {}: an include names no file", folder.string()));
    }
    const stdfs::path file = FirstOf({main_folder / name, folder / name});
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

// The compiler's folders of assets.
struct AssetFolders {
  stdfs::path meshes;
  stdfs::path textures;
  bool has_no_paths = false;  // strippath
};

// Reads them from the document; the last compiler element wins.
AssetFolders TakeAssetFolders(XMLElement* root) {
  AssetFolders folders;
  for (XMLElement* compiler = root->FirstChildElement("compiler");
       compiler != nullptr;
       compiler = compiler->NextSiblingElement("compiler")) {
    const auto take = [&](const char* name, auto use) {
      if (const char* value = compiler->Attribute(name)) use(value);
      compiler->DeleteAttribute(name);
    };
    take("assetdir",
         [&](const char* value) { folders.meshes = folders.textures = value; });
    take("meshdir", [&](const char* value) { folders.meshes = value; });
    take("texturedir", [&](const char* value) { folders.textures = value; });
    take("strippath", [&](std::string_view value) {
      folders.has_no_paths = value == "true";
    });
  }
  return folders;
}

// Copies assets, each once.
class AssetCopies {
 public:
  explicit AssetCopies(stdfs::path folder) : folder_(std::move(folder)) {}

  // Returns the name of the copy relative to the folder.
  std::string Copy(const stdfs::path& file, bool is_model) {
    const stdfs::path source = stdfs::weakly_canonical(file);
    std::string& name = names_[source];
    if (!name.empty()) return name;
    const std::string place = fmt::format("assets/{}", names_.size());
    if (is_model) {
      CopyMjcf(source, folder_ / place);
      return name = place + "/model.xml";
    }
    MakeFolders(folder_ / place);
    std::error_code error;
    stdfs::copy_file(source, folder_ / place / file.filename(), error);
    if (error) {
      throw IoError::FromErrno("cannot copy", source, error.value());
    }
    return name = place + "/" + file.filename().string();
  }

 private:
  const stdfs::path folder_;
  std::map<stdfs::path, std::string> names_;
};

// Copies the files of one element and makes its attributes name the copies.
void CopyFiles(XMLElement* element, const stdfs::path& main_folder,
               const AssetFolders& folders, AssetCopies* copies) {
  const std::string_view kind = element->Name();
  const bool is_model = kind == "model";
  const stdfs::path asset_folder = is_model            ? stdfs::path()
                                   : kind == "texture" ? folders.textures
                                                       : folders.meshes;
  const char* const own_folder = element->Attribute(kFolder);
  for (const char* attribute : kFileAttributes) {
    const char* const value = element->Attribute(attribute);
    if (value == nullptr || *value == '\0') continue;
    stdfs::path name = value;
    if (folders.has_no_paths) name = name.filename();
    std::vector<stdfs::path> candidates = {main_folder / asset_folder / name};
    if (own_folder != nullptr) {
      candidates.push_back(stdfs::path(own_folder) / name);
      candidates.push_back(own_folder / asset_folder / name);
    }
    element->SetAttribute(attribute,
                          copies->Copy(FirstOf(candidates), is_model).c_str());
  }
}

}  // namespace

stdfs::path CopyMjcf(const stdfs::path& mjcf, const stdfs::path& folder) {
  tinyxml2::XMLDocument document;
  Load(mjcf, &document);
  const stdfs::path main_folder = stdfs::absolute(mjcf).parent_path();
  XMLElement* const root = document.RootElement();
  ReplaceIncludes(root, main_folder, main_folder, /*depth=*/0);
  const AssetFolders folders = TakeAssetFolders(root);
  MakeFolders(folder);
  AssetCopies copies(folder);
  ForEach(root, [&](XMLElement* element) {
    CopyFiles(element, main_folder, folders, &copies);
    element->DeleteAttribute(kFolder);
  });
  tinyxml2::XMLPrinter printer;
  document.Print(&printer);
  const stdfs::path copy = folder / "model.xml";
  AtomicWriteFile(copy, printer.CStr());
  return copy;
}

}  // namespace replicant::env
