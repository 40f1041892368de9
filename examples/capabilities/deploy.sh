#!/bin/sh
# Deploys releases into the folder that it starts in: the program of deploy.yaml. Replace the body of `release` with
# your own deployment. Keep the exit codes and the answers.
#
#   deploy.sh release --key=KEY -- SERVICE VERSION    prints {"release": ..., "service": ..., "version": ...}
#   deploy.sh find --key=KEY                          prints applied or absent
#   deploy.sh withdraw -- RELEASE                     restores the previous version
#
# Exit codes: 0 done; 64 refused, nothing happened; 75 nothing happened, try again later.
set -eu
refuse() { echo "$1" >&2; exit 64; }
# A value that is part of a file name has letters, digits, `.`, `_` and `-`, and does not begin with a dot.
plain() { case $1 in '' | .* | *[!A-Za-z0-9._-]*) refuse "not a name: $1" ;; esac }

verb=${1:-}
shift || refuse "say what to do"
key=
case ${1:-} in --key=*) key=${1#--key=}; plain "$key"; shift ;; esac
[ "${1:-}" != -- ] || shift

case $verb in
release)
    service=$1 version=$2
    plain "$service"
    plain "$version"
    mkdir -p releases current
    [ ! -e busy ] || { echo "another deployment runs" >&2; exit 75; }
    before=none
    [ ! -e "current/$service" ] || before=$(cat "current/$service")
    # The file of the release appears whole or not at all, because `find` relies on it.
    printf '%s %s %s\n' "$service" "$version" "$before" > "releases/.$key"
    mv "releases/.$key" "releases/$key"
    printf '%s\n' "$version" > "current/$service"
    printf '{"release": "%s", "service": "%s", "version": "%s"}\n' "$key" "$service" "$version"
    ;;
find)
    if [ -e "releases/$key" ]; then echo applied; else echo absent; fi
    ;;
withdraw)
    plain "$1"
    # Already withdrawn: a second run has the same result as the first.
    [ -e "releases/$1" ] || exit 0
    read -r service version before < "releases/$1"
    if [ "$before" = none ]; then rm -f "current/$service"; else printf '%s\n' "$before" > "current/$service"; fi
    rm "releases/$1"
    echo "withdrew $version of $service"
    ;;
*)
    refuse "release, find or withdraw"
    ;;
esac
