#!/bin/sh
# Makes the certificates of the transport exam anew: valid until 2124, except the one that must have expired.
# They protect nothing: the keys are public. Needs openssl; the files it writes are kept in the repository.
set -eu
cd "$(dirname "$0")"
ec="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
work=$(mktemp -d)

authority() { # FILE NAME
  openssl req -x509 $ec -days 36500 -keyout "$work/$1.key" -out "$1.pem" -subj "/CN=$2" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
}
leaf() { # FILE AUTHORITY NAMES START END
  openssl req $ec -keyout "$work/leaf.key" -out "$work/leaf.csr" -subj "/CN=test server" 2>/dev/null
  printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n' "$3" >"$work/ext"
  : >"$work/index.txt"
  printf '[ca]\ndefault_ca=d\n[d]\ndatabase=%s/index.txt\nnew_certs_dir=%s\nrand_serial=yes\npolicy=p\ndefault_md=sha256\n[p]\ncommonName=supplied\n' "$work" "$work" >"$work/ca.cnf"
  openssl ca -batch -notext -config "$work/ca.cnf" -in "$work/leaf.csr" -out "$work/leaf.pem" -extfile "$work/ext" \
    -cert "$2.pem" -keyfile "$work/$2.key" -startdate "$4" -enddate "$5" 2>/dev/null
  cat "$work/leaf.pem" "$work/leaf.key" >"$1.pem"
}

authority ca "batchwright test CA"
authority stranger-ca "a CA that nobody trusts"
leaf localhost ca "DNS:localhost,DNS:vendor.test,IP:127.0.0.1" 20240101000000Z 21240101000000Z
leaf other-host ca "DNS:other.test" 20240101000000Z 21240101000000Z
leaf expired ca "DNS:localhost,IP:127.0.0.1" 20200101000000Z 20210101000000Z
leaf stranger stranger-ca "DNS:localhost,IP:127.0.0.1" 20240101000000Z 21240101000000Z
rm -r "$work" stranger-ca.pem
