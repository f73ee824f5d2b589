#include "measure/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <sstream>

#include "measure/child_process.h"
#include "measure/process_files.h"

namespace fathom::measure {
namespace {

constexpr int64_t kSectorBytes = 512;  // of /proc/diskstats, whatever the disk's own are
constexpr std::chrono::seconds kNvidiaLimit{10};

std::string trimmed(std::string text) {
  constexpr const char* kBlank = " \t\r\n\"";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string line_of(const std::string& path) {
  const auto text = read_small_file(path);
  return text ? trimmed(text->substr(0, text->find('\n'))) : std::string();
}

/// What follows the separator on the first line that begins with `name`.
std::string value_of(const std::string& text, const std::string& name, char separator) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(separator);
    if (at != std::string::npos && trimmed(line.substr(0, at)) == name) return trimmed(line.substr(at + 1));
  }
  return {};
}

std::string joined(std::initializer_list<std::string> parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    if (!text.empty()) text += between;
    text += part;
  }
  return text;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// "performance", or "performance (6), powersave (2)" where cores differ.
std::string counted(const std::vector<std::string>& values) {
  std::map<std::string, int> counts;
  for (const std::string& value : values)
    if (!value.empty()) ++counts[value];
  std::string text;
  for (const auto& [value, count] : counts) {
    if (!text.empty()) text += ", ";
    text += counts.size() == 1 ? value : fmt::format("{} ({})", value, count);
  }
  return text;
}

std::string governors(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/cpu";
  std::vector<std::string> values;
  for (const std::string& name : names_in(folder))
    if (name.starts_with("cpu")) values.push_back(line_of(folder + "/" + name + "/cpufreq/scaling_governor"));
  return counted(values);
}

/// "mains", "battery 63 %", or nothing.
std::string supply(const std::string& root) {
  const std::string folder = root + "/sys/class/power_supply";
  std::string battery;
  for (const std::string& name : names_in(folder)) {
    const std::string type = line_of(folder + "/" + name + "/type");
    if (type == "Mains" && line_of(folder + "/" + name + "/online") == "1") return "mains";
    if (type == "Battery") {
      const std::string share = line_of(folder + "/" + name + "/capacity");
      battery = share.empty() ? "battery" : "battery " + share + " %";
    }
  }
  return battery;
}

std::string virtualisation(const std::string& root, const std::string& cpuinfo) {
  const std::string hypervisor = line_of(root + "/sys/hypervisor/type");
  if (!hypervisor.empty()) return hypervisor;
  const std::string vendor = line_of(root + "/sys/class/dmi/id/sys_vendor");
  const std::string product = line_of(root + "/sys/class/dmi/id/product_name");
  for (const char* known :
       {"QEMU", "KVM", "VMware", "VirtualBox", "Xen", "Virtual Machine", "Google Compute Engine"})
    if ((vendor + " " + product).find(known) != std::string::npos) return joined({vendor, product}, " ");
  const std::string flags = " " + value_of(cpuinfo, "flags", ':') + " ";
  return flags.find(" hypervisor ") != std::string::npos ? "a virtual machine" : "";
}

/// "[always] madvise never" -> "always".
std::string chosen(const std::string& line) {
  const size_t begin = line.find('['), end = line.find(']');
  return begin == std::string::npos || end == std::string::npos || end < begin
             ? line : line.substr(begin + 1, end - begin - 1);
}

void read_cpu(const std::string& cpuinfo, const std::string& root, Environment& environment) {
  environment.cpu = value_of(cpuinfo, "model name", ':');
  // 64-bit ARM names its parts by numbers.
  if (environment.cpu.empty()) {
    const std::string implementer = value_of(cpuinfo, "CPU implementer", ':');
    const std::string part = value_of(cpuinfo, "CPU part", ':');
    if (!part.empty()) environment.cpu = joined({"implementer", implementer, "part", part}, " ");
  }
  if (environment.machine.empty())
    environment.machine = trimmed(line_of(root + "/proc/device-tree/model").c_str());  // ends in a NUL
  std::istringstream lines(cpuinfo);
  int64_t cores = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("processor")) ++cores;
  if (cores > 0) environment.cores = cores;
}

void add_more(Environment& environment, const char* name, std::string value) {
  if (!value.empty()) environment.more.emplace_back(name, std::move(value));
}

}  // namespace

std::string gpu_text(const std::string& csv) {
  std::vector<std::string> gpus;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    line = trimmed(line);
    const size_t last = line.rfind(", ");
    if (last != std::string::npos) line.insert(last + 2, "driver ");
    if (!line.empty()) gpus.push_back(line);
  }
  return counted(gpus) + (gpus.size() > 1 && counted(gpus).find(" (") == std::string::npos
                              ? fmt::format(" ({})", gpus.size()) : "");
}

Environment read_environment(const std::string& root) {
  Environment environment;
  const std::string dmi = root + "/sys/class/dmi/id/";
  environment.machine = joined({line_of(dmi + "sys_vendor"), line_of(dmi + "product_name")}, " ");
  const std::string cpuinfo = read_small_file(root + "/proc/cpuinfo").value_or("");
  read_cpu(cpuinfo, root, environment);
  const std::string release = read_small_file(root + "/etc/os-release").value_or("");
  environment.os = value_of(release, "PRETTY_NAME", '=');
  environment.kernel =
      joined({line_of(root + "/proc/sys/kernel/ostype"), line_of(root + "/proc/sys/kernel/osrelease"),
              line_of(root + "/proc/sys/kernel/arch")},
             " ");
  if (utsname name{}; root.empty() && ::uname(&name) == 0)
    environment.kernel = joined({name.sysname, name.release, name.machine}, " ");
  const auto memory = read_small_file(root + "/proc/meminfo");
  if (const auto kib = number_of_line(memory.value_or(""), "MemTotal")) environment.memory_bytes = *kib * 1024;
  const std::string governor = governors(root);
  environment.power = joined({governor.empty() ? "" : "governor " + governor,
                              [&] {
                                const std::string profile = line_of(root + "/sys/firmware/acpi/platform_profile");
                                return profile.empty() ? profile : "profile " + profile;
                              }(),
                              supply(root)}, ", ");
  if (root.empty()) {
    const auto csv = output_of(
        {"nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"}, kNvidiaLimit);
    if (csv) environment.gpu = gpu_text(*csv);
  }
  add_more(environment, "transparent_hugepages",
           chosen(line_of(root + "/sys/kernel/mm/transparent_hugepage/enabled")));
  add_more(environment, "virtualisation", virtualisation(root, cpuinfo));
  add_more(environment, "load_average", line_of(root + "/proc/loadavg"));
  add_more(environment, "swappiness", line_of(root + "/proc/sys/vm/swappiness"));
  return environment;
}

SystemUsage read_system_usage(const std::string& root) {
  SystemUsage usage;
  const std::string memory = read_small_file(root + "/proc/meminfo").value_or("");
  const auto total = number_of_line(memory, "SwapTotal"), unused = number_of_line(memory, "SwapFree");
  if (total && unused) usage.swap_used_bytes = (*total - *unused) * 1024;
  if (const auto kib = number_of_line(memory, "MemAvailable")) usage.memory_available_bytes = *kib * 1024;
  const std::string counters = read_small_file(root + "/proc/vmstat").value_or("");
  const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  if (const auto pages = number_of_line(counters, "pswpin")) usage.swapped_in_bytes = *pages * page_bytes;
  if (const auto pages = number_of_line(counters, "pswpout")) usage.swapped_out_bytes = *pages * page_bytes;
  std::istringstream disks(read_small_file(root + "/proc/diskstats").value_or(""));
  for (std::string line; std::getline(disks, line);) {
    std::istringstream fields(line);
    int64_t major = 0, minor = 0, reads = 0, merged = 0, read_sectors = 0, read_ms = 0, writes = 0,
            writes_merged = 0, written_sectors = 0;
    std::string name;
    fields >> major >> minor >> name >> reads >> merged >> read_sectors >> read_ms >> writes >> writes_merged >>
        written_sectors;
    // Whole disks only; what is made of them (loop, device mapper, RAID, RAM) would count twice.
    const bool is_disk = std::filesystem::exists(root + "/sys/block/" + name);
    const bool is_made = name.starts_with("loop") || name.starts_with("dm-") || name.starts_with("md") ||
                         name.starts_with("ram") || name.starts_with("zram");
    if (!fields || !is_disk || is_made) continue;
    usage.disk_read_bytes = usage.disk_read_bytes.value_or(0) + read_sectors * kSectorBytes;
    usage.disk_written_bytes = usage.disk_written_bytes.value_or(0) + written_sectors * kSectorBytes;
  }
  return usage;
}

}  // namespace fathom::measure
