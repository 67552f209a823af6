#!/usr/bin/env bash
# java.sh: print the home of a Java 17 or later, which Spark needs; install one where there is none and the system's
# package manager may be used, else say what to install. Everything but the home goes to stderr.
set -euo pipefail
cd "$(dirname "$0")/.."

home_if_fits() { # the home of a java executable, if it is 17 or later
    local settings version
    settings=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    version=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$settings")
    case $version in
        1[7-9] | [2-9][0-9]) sed -n 's/^ *java\.home = //p' <<<"$settings" ;;
        *) return 1 ;;
    esac
}

find_home() {
    local java
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java || true)" /usr/lib/jvm/*/bin/java \
        /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java; do
        if [ -x "$java" ] && home_if_fits "$java"; then
            return
        fi
    done
    return 1
}

. .ci/packages.sh

install_java() {
    if command -v brew >/dev/null; then
        first_that_installs brew install -- openjdk@17
    elif ! may_install; then
        return 1
    elif command -v apt-get >/dev/null; then
        as_root apt-get update -qq >&2 || true # one unreachable source of packages is no reason to give up
        first_that_installs as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends -- openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless
    elif command -v dnf >/dev/null; then
        first_that_installs as_root dnf install -y -q -- java-17-openjdk-headless java-21-openjdk-headless
    elif command -v apk >/dev/null; then
        first_that_installs as_root apk add -q -- openjdk17-jre-headless openjdk21-jre-headless
    else
        return 1
    fi
}

if home=$(find_home) || { install_java && home=$(find_home); }; then
    echo "$home"
    exit
fi
cat >&2 <<'TEXT'
Spark needs Java 17 or later, and none was found or could be installed. Install one:
    Debian, Ubuntu:        sudo apt-get install openjdk-17-jre-headless
    Fedora, Red Hat:       sudo dnf install java-17-openjdk-headless     (or java-21-openjdk-headless)
    Alpine:                sudo apk add openjdk17-jre-headless
    macOS with Homebrew:   brew install openjdk@17
then run the command again; if Java lies in an unusual place, set JAVA_HOME to it.
TEXT
exit 1
