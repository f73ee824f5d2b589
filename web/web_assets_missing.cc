// The program without the chat page.
#include "server/web_assets.h"

namespace fathom {

std::span<const WebAsset> web_assets() {
  static constexpr WebAsset kNote[] = {{
      "/",
      "text/plain; charset=utf-8",
      "This program was built without its chat page, which needs npm and Node 20.19 or later at build time.\n"
      "The API is here: POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages; GET /v1/models.\n",
      false,
  }};
  return kNote;
}

bool web_page_built() { return false; }

}  // namespace fathom
