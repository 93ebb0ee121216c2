"""Which header of the standard library declares a name, and which of a file's names it includes none for.

Headers of ours are compiled alone behind a precompiled header of what they include most, because to read that again
takes most of the compiler's time. So the compiler does not see what of it a header forgot: that is found here.
"""

import re
from collections.abc import Iterable

# Of a name in a namespace, as std::chrono::seconds, the namespace says enough.
DECLARES = {
    "algorithm": "all_of any_of clamp copy count count_if equal fill find find_if lower_bound max max_element min "
                 "min_element minmax move_backward none_of nth_element partial_sort ranges remove_if replace reverse rotate "
                 "sort stable_sort swap_ranges transform unique upper_bound",
    "array": "array to_array",
    "atomic": "atomic atomic_flag atomic_ref atomic_thread_fence memory_order memory_order_acq_rel "
              "memory_order_acquire memory_order_relaxed memory_order_release memory_order_seq_cst",
    "bit": "bit_cast bit_ceil bit_width countl_zero countr_zero has_single_bit popcount",
    "cfenv": "fegetenv fenv_t fesetenv",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": "abs ceil cos exp fabs floor fmax fmin hypot isfinite isinf isnan ldexp llround log pow round signbit "
             "sqrt",
    "compare": "partial_ordering strong_ordering weak_ordering",
    "concepts": "convertible_to derived_from floating_point integral invocable same_as signed_integral "
                "unsigned_integral",
    "condition_variable": "condition_variable condition_variable_any cv_status",
    "cstddef": "byte nullptr_t ptrdiff_t size_t",
    "cstdint": "int16_t int32_t int64_t int8_t intptr_t uint16_t uint32_t uint64_t uint8_t uintptr_t",
    "cstdlib": "abort exit free getenv malloc",
    "cstring": "memchr memcmp memcpy memmove memset strlen",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr rethrow_exception terminate",
    "filesystem": "filesystem",
    "fstream": "fstream ifstream ofstream",
    "functional": "bind_front function greater hash invoke less plus reference_wrapper",
    "future": "future promise",
    "initializer_list": "initializer_list",
    "iomanip": "setprecision setw",
    "ios": "dec defaultfloat fixed hex hexfloat ios",
    "iosfwd": "istream ostream",
    "iterator": "back_inserter next prev",
    "limits": "numeric_limits",
    "list": "list",
    "map": "less map multimap",
    "memory": "enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag recursive_mutex scoped_lock unique_lock",
    "new": "bad_alloc",
    "numbers": "numbers",
    "numeric": "accumulate iota",
    "optional": "nullopt optional",
    "random": "mt19937 mt19937_64 normal_distribution uniform_int_distribution uniform_real_distribution",
    "set": "less multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "span": "as_bytes as_writable_bytes dynamic_extent span",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "domain_error invalid_argument length_error logic_error out_of_range range_error runtime_error",
    "stop_token": "stop_source stop_token",
    "string": "char_traits getline stod stoi string to_string",
    "string_view": "string_view",
    "system_error": "errc error_category error_code make_error_code system_category system_error",
    "thread": "jthread this_thread thread",
    "tuple": "apply make_tuple tie tuple",
    "type_traits": "bool_constant conditional_t decay_t false_type integral_constant is_enum_v is_same_v is_signed_v "
                   "is_standard_layout_v is_trivially_copyable_v remove_const_t remove_cvref_t remove_reference_t "
                   "true_type underlying_type_t",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "as_const cmp_equal cmp_less declval exchange forward in_range make_pair move pair swap",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "erase_if vector",
}

# What is precompiled: more would take as long to load as it saves.
MOST_INCLUDED = ("algorithm array atomic chrono cstddef cstdint filesystem functional limits map memory mutex optional "
                 "span string string_view utility vector")

# What a header gives beside its own names, by the standard or in every implementation.
GIVES_TOO = {
    "size_t ptrdiff_t nullptr_t": " ".join(DECLARES),
    "initializer_list": "algorithm array deque functional map memory optional set span string string_view "
                        "unordered_map utility vector",
    "istream ostream": "fstream iomanip ios iostream istream memory ostream sstream string string_view",
    "dec defaultfloat fixed hex hexfloat ios": "fstream iomanip iostream istream ostream sstream",
    "bad_alloc": "memory",
    "current_exception exception exception_ptr rethrow_exception terminate": "new stdexcept system_error",
    "errc error_code": "charconv filesystem fstream ios mutex",
    "string": "stdexcept sstream filesystem",
    "string_view": "string",
    "lock_guard mutex unique_lock": "condition_variable",
    "stop_source stop_token": "thread",
    "forward move pair swap": "algorithm functional map memory optional tuple unordered_map variant",
}

# Names of C and POSIX, which most headers of the standard library let in.
C_NAMES = {
    "errno": "cerrno errno.h",
    "offsetof": "cstddef stddef.h",
    "assert": "cassert assert.h",
    "gid_t mode_t off_t pid_t ssize_t uid_t": "sys/types.h sys/stat.h unistd.h",
    "pthread_t": "pthread.h",
    "timespec": "ctime time.h",
}

NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)
USED = re.compile(r"\bstd::(\w+)")


def having(name: str, table: dict[str, str]) -> list[str]:
    """The values of the keys that `name` is a word of."""
    return [value for names, value in table.items() if name in names.split()]


def headers_of(name: str) -> list[str]:
    """Those that declare std::`name`, its own one first; empty if that is not known."""
    own = [header for header, names in DECLARES.items() if name in names.split()]
    return own + [header for headers in having(name, GIVES_TOO) for header in headers.split()] if own else []


def forgotten(text: str, included: Iterable[str]) -> list[str]:
    """A sentence for each name of the standard library in `text` that none of the headers in `included`, written
    as in #include <...>, declares."""
    code = NOT_CODE.sub(" ", text)
    wanted = {f"std::{name}": headers_of(name) for name in USED.findall(code)}
    for names, headers in C_NAMES.items():
        wanted |= {name: headers.split() for name in names.split() if re.search(rf"(?<![\w.>]){name}\b", code)}
    included = set(included)
    complaints = []
    for name, headers in sorted(wanted.items()):
        if not headers:
            complaints.append(f"{name} is not in scripts/lint/standard_names.py: add it to its header's row")
        elif not included & set(headers):
            complaints.append(f"{name} is used, and neither this header nor one that it includes has "
                              f"#include <{headers[0]}>")
    return complaints
