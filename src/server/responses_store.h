#pragma once
namespace fathom {
class ResponseStore {};
}
