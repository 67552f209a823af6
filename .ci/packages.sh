# packages.sh: what scripts share that install packages of the system, where they may.

may_install() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

first_that_installs() { # COMMAND... -- PACKAGE...: distributions carry different versions of Java
    local command=()
    while [ "$1" != -- ]; do command+=("$1") && shift; done
    shift
    local package
    for package in "$@"; do
        echo "Trying to install $package ..." >&2
        if "${command[@]}" "$package" >&2; then return; fi
    done
    return 1
}
