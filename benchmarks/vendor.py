"""A vendor on loopback that costs almost nothing: nginx with its echo module, so that clients are what is measured.

    python benchmarks/vendor.py start [--port 18700]      # until `stop`; `run.py` starts and stops its own
    python benchmarks/vendor.py stop  [--port 18700]

It answers POST .../chat/completions with a chat completion of about 600 bytes. No two answers are alike: ids, words and
token counts differ, so that a client that compresses its answers gains here what it would gain elsewhere. The headers
are those of a hosted vendor, with limits that nobody reaches.

Needs nginx and the echo module (Debian: `apt-get install nginx-light libnginx-mod-http-echo`), and openssl for TLS.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

DELAYS_MS = (0, 20, 50, 100, 500)
"""Plain HTTP listens at port + 0, 1, 2, 3, 4, in this order of delays."""
TLS_DELAYS_MS = (0, 50)
"""TLS listens at port + 5 and + 6."""
DEFAULT_PORT = 18700
REQUESTS_A_MINUTE = 6_000_000
"""Said in the headers. Ten times what two cores can send, so that no client that heeds headers is held back."""

WORDS = """account address after again always amount answer app apply arrived because before billing blank broken button
    cable called cancel card change charge checkout clear closed code colour contact copy could courier credit customer
    damaged date deleted delivery desk device different discount document doubled early empty error every expected
    expired export failed fault first fixed forgot friendly frozen gift glad half happy help hour import invoice item
    keyboard language late length letter link login lost manual message missing month name never night nobody number
    offer office opened order paid parcel partial password payment phone picture plan point polite praised price printer
    problem promised quality question quick receipt refund region reminder renewal replaced reply report returned
    router saved screen second sent service session setup signed size slow solved sorry started status stopped store
    support switch table tariff thanks ticket today total tracking trial twice update upgrade upload urgent useful
    voucher waited warranty website week window wireless wrong yesterday zone"""
CONTENT_WORDS = 16
MODULE_FOLDERS = ("/usr/lib/nginx/modules", "/usr/share/nginx/modules", "/usr/lib64/nginx/modules")


@dataclass(frozen=True, slots=True)
class Vendor:
    """Where a started vendor listens; leaving it as a context stops it."""

    port: int
    folder: Path

    def url(self, delay_ms: int) -> str:
        return f"http://127.0.0.1:{self.port + DELAYS_MS.index(delay_ms)}/v1"

    def tls_url(self, delay_ms: int) -> str:
        return f"https://localhost:{self.port + len(DELAYS_MS) + TLS_DELAYS_MS.index(delay_ms)}/v1"

    @property
    def ca_file(self) -> Path:
        """The authority that signed its certificate; a client is told by SSL_CERT_FILE."""
        return self.folder / "ca.pem"

    def __enter__(self) -> Vendor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop(self.port)


def start(port: int = DEFAULT_PORT, *, workers: int = 1) -> Vendor:
    """Raises SystemExit, saying what is missing, where nginx or its module is."""
    nginx = _needed("nginx", "nginx-light libnginx-mod-http-echo")
    vendor = Vendor(port, _folder(port))
    stop(port)
    vendor.folder.mkdir(parents=True, exist_ok=True)
    if not vendor.ca_file.exists():
        _make_certificates(vendor.folder)
    config = vendor.folder / "nginx.conf"
    config.write_text(_config(vendor, _echo_module(), workers))
    subprocess.run([nginx, "-c", str(config), "-e", str(vendor.folder / "error.log")], check=True)
    _wait_until_up(vendor.url(0))
    return vendor


def stop(port: int = DEFAULT_PORT) -> None:
    """Ends the vendor of this port, if there is one."""
    folder = _folder(port)
    pid_file = folder / "nginx.pid"
    if not pid_file.exists():
        return
    config = str(folder / "nginx.conf")
    subprocess.run(
        [_needed("nginx", "nginx-light"), "-c", config, "-e", str(folder / "error.log"), "-s", "stop"],
        check=False,
        capture_output=True,
    )
    for _ in range(100):
        if not pid_file.exists():
            return
        time.sleep(0.05)


def _folder(port: int) -> Path:
    return Path(tempfile.gettempdir()) / f"batchwright-bench-vendor-{port}"


def _needed(program: str, packages: str) -> str:
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise SystemExit(f"{program} was not found; on Debian and Ubuntu: apt-get install {packages}")
    return found


def _echo_module() -> str:
    for folder in MODULE_FOLDERS:
        module = Path(folder) / "ngx_http_echo_module.so"
        if module.exists():
            return str(module)
    raise SystemExit("nginx's echo module was not found; on Debian and Ubuntu: apt-get install libnginx-mod-http-echo")


def _wait_until_up(url: str) -> None:
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"{url}/models", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"the vendor at {url} did not come up; see error.log in its folder")


def _make_certificates(folder: Path) -> None:
    """An authority and a certificate for localhost, valid for a year: written once, used by every later start."""
    openssl = _needed("openssl", "openssl")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    extensions = folder / "leaf.ext"
    extensions.write_text(
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n"
    )
    authority = ["-x509", "-days", "365", "-subj", "/CN=benchmark authority", "-keyout", "ca.key", "-out", "ca.pem"]
    request = ["-subj", "/CN=localhost", "-keyout", "leaf.key", "-out", "leaf.csr"]
    signing = ["-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "365"]
    for command in (
        [openssl, "req", *new_key, *authority],
        [openssl, "req", *new_key, *request],
        [openssl, "x509", "-req", *signing, "-extfile", extensions.name, "-out", "leaf.pem"],
    ):
        subprocess.run(command, check=True, cwd=folder, capture_output=True)


def _config(vendor: Vendor, echo_module: str, workers: int) -> str:
    folder = vendor.folder
    words = [f"word{number}" for number in range(CONTENT_WORDS)]
    content = " ".join(f"${word}" for word in words)
    answer = (
        '{"id":"chatcmpl-$request_id","object":"chat.completion","created":1790000000,"model":"gpt-4o-mini-2024-07-18",'
        '"choices":[{"index":0,"message":{"role":"assistant","content":"Verdict: ' + content + '.",'
        '"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],'
        '"usage":{"prompt_tokens":2$tokens,"completion_tokens":$tokens,"total_tokens":$total,'
        '"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},'
        '"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}},'
        '"service_tier":"default","system_fingerprint":"fp_44add35f1c"}'
    )
    tokens = range(10, 90)
    draws = [_draw(word, WORDS.split()) for word in words] + [_draw("tokens", [str(number) for number in tokens])]
    sums = "".join(f"    {number} {200 + 2 * number};\n" for number in tokens)
    plain = [_server(f"127.0.0.1:{vendor.port + n}", delay_ms) for n, delay_ms in enumerate(DELAYS_MS)]
    first_tls = vendor.port + len(DELAYS_MS)
    tls = [_server(f"127.0.0.1:{first_tls + n} ssl", delay_ms) for n, delay_ms in enumerate(TLS_DELAYS_MS)]
    servers = "".join(plain + tls).replace("@ANSWER@", answer)
    return f"""
load_module {echo_module};
worker_processes {workers};
worker_rlimit_nofile 20000;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 8192; multi_accept on; }}
http {{
  access_log off; tcp_nodelay on; server_tokens off;
  variables_hash_max_size 2048;
  keepalive_requests 1000000000; keepalive_timeout 600s;
  client_body_buffer_size 64k; client_max_body_size 32m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  ssl_certificate {folder}/leaf.pem; ssl_certificate_key {folder}/leaf.key;
  ssl_session_cache shared:sessions:4m;
{"".join(draws)}  map $tokens $total {{
{sums}  }}
{servers}}}
"""


def _draw(variable: str, choices: list[str]) -> str:
    """A variable that is one of the choices, drawn anew for each request."""
    share = 100 / len(choices)
    lines = "".join(f"    {share:.2f}% {choice};\n" for choice in choices[:-1])
    return f'  split_clients "${{request_id}}{variable}" ${variable} {{\n{lines}    * {choices[-1]};\n  }}\n'


def _server(listen: str, delay_ms: int) -> str:
    # A location that sleeps hands over to one that returns: what `echo` writes itself would be sent chunked.
    body = f"echo_sleep {delay_ms / 1000}; echo_exec @answer;" if delay_ms else "return 200 '@ANSWER@';"
    return f"""
  server {{
    listen {listen} backlog=4096 reuseport;
    default_type application/json;
    add_header x-request-id req_$request_id;
    add_header openai-processing-ms 41;
    add_header x-ratelimit-limit-requests {REQUESTS_A_MINUTE};
    add_header x-ratelimit-remaining-requests {REQUESTS_A_MINUTE - 1};
    add_header x-ratelimit-reset-requests 1ms;
    add_header x-ratelimit-limit-tokens {REQUESTS_A_MINUTE * 1000};
    add_header x-ratelimit-remaining-tokens {REQUESTS_A_MINUTE * 1000 - 500};
    add_header x-ratelimit-reset-tokens 1ms;
    location /v1/chat/completions {{ {body} }}
    location /v1/models {{ return 200 '{{"object":"list","data":[{{"id":"gpt-4o-mini","object":"model"}}]}}'; }}
    location @answer {{ return 200 '@ANSWER@'; }}
  }}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="a fast vendor on loopback")
    parser.add_argument("verb", choices=("start", "stop"))
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.verb == "stop":
        stop(arguments.port)
        return
    vendor = start(arguments.port, workers=arguments.workers)
    for delay_ms in DELAYS_MS:
        print(f"{delay_ms:4} ms  {vendor.url(delay_ms)}")
    for delay_ms in TLS_DELAYS_MS:
        print(f"{delay_ms:4} ms  {vendor.tls_url(delay_ms)}  (SSL_CERT_FILE={vendor.ca_file})")


if __name__ == "__main__":
    main()
