#!/usr/bin/env bash
# Makes a toolchain on Debian that checks and lints this project for macOS (aarch64-apple-darwin): no Mac, no SDK.
#
#   ci/mac-toolchain.sh DIR
#   CARGO_TARGET_DIR=target/mac DIR/bin/cargo clippy --workspace --all-targets --target aarch64-apple-darwin
#
# The compiler and the sources of its standard library come from Debian's packages for browsers (rustc-web and friends),
# which are one version; they are unpacked below DIR and never installed. The standard library is built once for the
# target. Nothing is linked, so nothing is proven about what the code does on a Mac. Crates that compile C get empty
# stand-ins for a compiler and an archiver, which is enough for checking. About 150 MB are downloaded and 700 MB kept; a second run does nothing.
set -euo pipefail

target=aarch64-apple-darwin
root=$(realpath -m "${1:?usage: mac-toolchain.sh DIR}")
usr=$root/unpacked/usr
mkdir -p "$root/bin"

# The package lists may be old, and the version that matters is in the newest.
apt-get update -qq || true
version=$(apt-cache policy rustc-web | awk '/Candidate:/ {print $2}')
done_mark=$root/.done-$version

unpack() {
    rm -rf "$root/unpacked" "$root/debs"
    mkdir -p "$root/unpacked" "$root/debs"
    local packages
    # What an installation would bring, of which this machine may have a part, and the four by name.
    packages=$(apt-get install --simulate --no-install-recommends rustc-web cargo-web rust-web-clippy \
        | awk '/^Inst/ {print $2}')
    packages=$(printf '%s\n' $packages rustc-web cargo-web rust-web-clippy rust-web-src | sort -u)
    (cd "$root/debs" && apt-get -o APT::Sandbox::User=root download -qq $packages)
    local deb
    for deb in "$root"/debs/*.deb; do
        if [[ $deb == *rust-web-src* ]]; then
            dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root/unpacked" --wildcards \
                './usr/src/rustc-*/library/*' './usr/lib/rustlib/src/*'
        else
            dpkg-deb -x "$deb" "$root/unpacked"
        fi
    done
    rm -rf "$root/debs"
}

write_tools() {
    printf '#!/bin/sh\n# Stands in for an archiver: makes an empty archive.\nfor word; do case $word in *.a) printf "!<arch>\\n" > "$word";; esac; done\n' > "$root/bin/empty-ar"
    printf '#!/bin/sh\n# Stands in for a C compiler: makes empty objects.\nwhile [ $# -gt 0 ]; do if [ "$1" = -o ]; then : > "$2"; fi; shift; done\n' > "$root/bin/empty-cc"
    cat > "$root/bin/cargo" <<WRAPPER
#!/bin/sh
# cargo with the target's standard library; written by ci/mac-toolchain.sh
export LD_LIBRARY_PATH="$usr/lib/x86_64-linux-gnu:$root/unpacked/lib/x86_64-linux-gnu:$usr/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
export PATH="$usr/bin:\$PATH" RUSTC="$usr/bin/rustc"
export CC_aarch64_apple_darwin="$root/bin/empty-cc" AR_aarch64_apple_darwin="$root/bin/empty-ar"
# The tool that strips is in a package that is not needed otherwise.
export CARGO_PROFILE_DEV_STRIP=none CARGO_PROFILE_RELEASE_STRIP=none
unset RUSTUP_TOOLCHAIN RUSTC_WRAPPER
exec "$usr/bin/cargo" "\$@"
WRAPPER
    chmod +x "$root"/bin/*
}

build_standard_library() {
    local build=$root/std
    mkdir -p "$build/src"
    : > "$build/src/lib.rs"
    printf '[package]\nname = "standard"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' > "$build/Cargo.toml"
    # The compiler is a stable one; building its own library is what this variable is for.
    (cd "$build" && RUSTC_BOOTSTRAP=1 RUSTFLAGS='' CARGO_TARGET_DIR="$build/target" "$root/bin/cargo" build --release \
        -Zbuild-std=std,panic_unwind,panic_abort,proc_macro,test --target $target)
    local libraries=$usr/lib/rustlib/$target/lib
    mkdir -p "$libraries"
    find "$build/target/$target/release/deps" -name '*.rlib' ! -name 'libstandard-*' -exec cp {} "$libraries/" \;
    rm -rf "$build"
}

if [[ ! -e $done_mark ]]; then
    unpack
    write_tools
    build_standard_library
    touch "$done_mark"
fi
write_tools
"$root/bin/cargo" --version
