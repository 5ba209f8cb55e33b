#!/bin/sh
# Compiles the runtime for Linux on aarch64, and runs tests/native with it under qemu. It wants a Debian, or a system like
# it, with qemu-user-static and g++-aarch64-linux-gnu. Into the folder that it is given go Debian's Python for aarch64, and
# of the package index what the tests need; nothing is installed.
set -eu
bin=$1 work=$2
for program in qemu-aarch64-static aarch64-linux-gnu-g++; do
  command -v $program > /dev/null || {
    echo "There is no $program here: apt-get install qemu-user-static g++-aarch64-linux-gnu" >&2
    exit 1
  }
done

if [ ! -d "$work/root" ]; then
  mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial"
  : > "$work/apt/status"
  packages() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false \
      -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt" "$@"
  }
  packages update
  packages install --yes --download-only python3-dev libstdc++6 > /dev/null
  for package in "$work"/apt/archives/*.deb; do dpkg-deb --extract "$package" "$work/unpacked"; done
  mv "$work/unpacked" "$work/root"
fi
program=$(echo "$work"/root/usr/bin/python3.[0-9]*[0-9])

# sys.executable is this file, so that tests can start other processes.
cat > "$work/python" << END
#!/bin/sh
exec qemu-aarch64-static -L "$work/root" -E PYTHONHOME="$work/root/usr" \\
  -E PYTHONPATH="$work/site:$PWD/plugin" -0 "\$0" "$program" "\$@"
END
chmod +x "$work/python"

if [ ! -d "$work/site" ]; then
  "$bin/python" -m pip download --quiet --disable-pip-version-check --only-binary :all: \
    --python-version "${program##*/python}" --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_17_aarch64 --dest "$work/wheels" \
    'numpy>=2,<3' 'ml_dtypes>=0.5.1,<1' 'msgspec>=0.19,<1' 'nanobind>=3.1,<4' 'pytest>=9,<10' 'hypothesis>=6.100,<7'
  for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/unzipped"; done
  mv "$work/unzipped" "$work/site"
fi

# Python for aarch64 runs as if it were this machine's. TensorFlow's headers are asked for, and not used.
"$bin/cmake" -S . -B "$work/build" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" --log-level=ERROR \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
  -DCMAKE_CXX_FLAGS="-idirafter $work/root/usr/include" -DCMAKE_BUILD_TYPE=Release -DSKBUILD_STATE=editable \
  -DCMAKE_POLICY_DEFAULT_CMP0190=NEW -DCMAKE_CROSSCOMPILING_EMULATOR=/usr/bin/env \
  -DPython_EXECUTABLE="$work/python" \
  -DHOSTCALL_TENSORFLOW="$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
"$bin/cmake" --build "$work/build" --target _runtime _frames _worker_client fake_cuda -- --quiet
# qemu does not keep to a limit of memory, which one test sets.
HOSTCALL_BUILD="$work/build" "$work/python" -m pytest -q --noconftest -p no:cacheprovider tests/native \
  --deselect 'tests/native/test_frames_threads.py::test_in_a_process_of_its_own[no threads]'
