#!/bin/sh
# Asks each gateway for /readyz once a second, because nginx does not, and takes those that are not ready out of nginx's
# configuration:
#
#   nginx-health.sh FILE HOST:PORT...      the file is nginx.conf of this folder, the ports are those of [metrics]
#
# A gateway is taken out after two refusals in a row, and put back after two answers of 200. If none is ready, all are
# in. A gateway that is being stopped, or does not listen, stays: nginx notices that itself, without a reload. nginx reads
# the file again by $NGINX_RELOAD, which is `nginx -s reload` by default; calls that run go on.
file=$1
shift
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'wait; exit 0' INT TERM

ask() { # keeps the last two answers, such as 10
    answer=0
    body=$(curl -s -w '%{http_code}' --max-time 1 "http://$1/readyz")
    case $?:$body in
    7:* | 0:*200 | 0:*'"accepting": false'*) answer=1 ;; # 7: no connection
    esac
    read -r last <"$folder/$1"
    echo "${last#?}$answer" >"$folder/$1"
}

for gateway; do
    echo 11 >"$folder/$gateway"
done
while sleep 1; do
    for gateway; do
        ask "$gateway" &
    done
    wait
    edit='' ins=0
    for gateway; do
        read -r last <"$folder/$gateway"
        case $last in
        00) : >"$folder/$gateway.out" ;;
        11) rm -f "$folder/$gateway.out" ;;
        esac
        line="/^ *server ${gateway%:*}:/"
        edit="$edit$line s/ down;/;/;"
        if [ -e "$folder/$gateway.out" ]; then
            edit="$edit$line s/;/ down;/;"
        else
            ins=$((ins + 1))
        fi
    done
    [ $ins -gt 0 ] || edit='s/^\( *server .*\) down;/\1;/'
    sed "$edit" "$file" >"$folder/new"
    if ! cmp -s "$folder/new" "$file"; then
        cat "$folder/new" >"$file"
        echo "nginx-health: $ins of $# gateways are in"
        ${NGINX_RELOAD:-nginx -s reload} || echo "nginx-health: nginx did not read $file again" >&2
    fi
done
