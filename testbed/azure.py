"""A blob server with Azure's protocol on loopback (azurite, which testbed/python.sh azure gets). Prints its port, and ends when its
stdin does. It has one container, `lake`, of the account `devstoreaccount1`.
"""
import base64
import datetime
import hashlib
import hmac
import os
import socket
import subprocess
import sys
import time
import urllib.request

ACCOUNT = "devstoreaccount1"
# Azurite's own, the same everywhere.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
MAIN = "~/.cache/tidewire/azurite/node_modules/azurite/dist/src/blob/main.js"


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def make_container(port, name):
    """A request signed with the account's key, as the protocol wants it."""
    headers = {
        "x-ms-date": datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "x-ms-version": "2021-08-06",
    }
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    # With the emulator the account is in the path, too.
    resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signed = f"PUT\n\n\n\n\n\n\n\n\n\n\n\n{lines}{resource}"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    url = f"http://127.0.0.1:{port}/{ACCOUNT}/{name}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=10)


def main():
    script, port = os.path.expanduser(MAIN), free_port()
    if not os.path.exists(script):
        sys.exit("azurite isn't there: run testbed/python.sh azure")
    command = ["node", script, "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]
    server = subprocess.Popen(command + ["--blobHost", "127.0.0.1", "--blobPort", str(port)], stdout=subprocess.DEVNULL)
    try:
        for attempt in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        make_container(port, "lake")
        print(port, flush=True)
        sys.stdin.read()
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
