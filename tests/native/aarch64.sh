#!/bin/sh
# Compiles the runtime for Linux on aarch64, and runs tests/native with it under qemu, in the folder that it is given:
# wheels/aarch64_python.sh.
set -eu
bin=$(cd "$1" && pwd) work=$2
wheels/aarch64_python.sh "$bin" "$work" \
  'numpy>=2,<3' 'ml_dtypes>=0.5.1,<1' 'msgspec>=0.19,<1' 'nanobind>=3.1,<4' 'pytest>=9,<10' 'hypothesis>=6.100,<7'
work=$(cd "$work" && pwd)

# TensorFlow's headers are asked for, and not used.
"$bin/cmake" -S . -B "$work/build" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" --log-level=ERROR \
  -DCMAKE_TOOLCHAIN_FILE="$work/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release -DSKBUILD_STATE=editable \
  -DCMAKE_POLICY_DEFAULT_CMP0190=NEW -DPython_EXECUTABLE="$work/venv/bin/python" \
  -DHOSTCALL_TENSORFLOW="$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
"$bin/cmake" --build "$work/build" --target _runtime _frames _worker_client fake_cuda -- --quiet
# qemu does not keep to a limit of memory, which one test sets.
HOSTCALL_BUILD="$work/build" PYTHONPATH=plugin "$work/venv/bin/python" -m pytest -q --noconftest -p no:cacheprovider \
  tests/native --deselect 'tests/native/test_frames_threads.py::test_in_a_process_of_its_own[no threads]'
