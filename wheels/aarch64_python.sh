#!/bin/sh
# Makes a Python for Linux on aarch64 that runs under qemu, and what CMake needs to compile modules for it. It wants a
# Debian, or a system like it, with qemu-user-static and g++-aarch64-linux-gnu; nothing is installed there.
#
#     wheels/aarch64_python.sh BIN WORK PACKAGE...
#
# BIN has pip. Into WORK go Debian's Python, a virtual environment, `venv`, with the packages from the package index, and
# toolchain.cmake. The environment's Python starts programs of this machine, too: a build runs there as on aarch64, and
# CMake and the compiler at full speed.
set -eu
bin=$1 work=$2
shift 2
for program in qemu-aarch64-static aarch64-linux-gnu-g++; do
  command -v $program > /dev/null || {
    echo "There is no $program here: apt-get install qemu-user-static g++-aarch64-linux-gnu" >&2
    exit 1
  }
done
mkdir -p "$work"
work=$(cd "$work" && pwd)

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
python=$(echo "$work"/root/usr/bin/python3.[0-9]*[0-9])
version=${python##*/python}
site=$work/venv/lib/python$version/site-packages

# sys.executable is the script, so that programs can start other processes. Python finds its home by pyvenv.cfg: variables
# would be those of the programs of this machine, too.
mkdir -p "$work/venv/bin" "$site"
echo "home = $work/root/usr/bin" > "$work/venv/pyvenv.cfg"
cat > "$work/venv/bin/python" << END
#!/bin/sh
exec qemu-aarch64-static -L "$work/root" -0 "\$0" "$python" "\$@"
END
chmod +x "$work/venv/bin/python"

# CMake takes qemu's Python for one of this machine.
cat > "$work/toolchain.cmake" << END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CXX_FLAGS_INIT "-idirafter $work/root/usr/include")
set(CMAKE_CROSSCOMPILING_EMULATOR /usr/bin/env)
END

if [ "$(cat "$work/packages" 2> /dev/null)" != "$*" ]; then
  platforms=
  for libc in 2_17 2_24 2_26 2_27 2_28; do platforms="$platforms --platform manylinux_${libc}_aarch64"; done
  # shellcheck disable=SC2086 # they are many words
  "$bin/python" -m pip install --quiet --disable-pip-version-check --upgrade --only-binary :all: --target "$site" \
    --python-version "$version" $platforms --platform manylinux2014_aarch64 "$@"
  echo "$*" > "$work/packages"
fi
