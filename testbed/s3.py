"""An S3 server on loopback (moto) that makes faults on demand. Prints its port, and ends when its stdin does.

    GET /_fault?method=PUT&part=.json&times=2&what=busy     the next requests whose path and query have `part` in them go wrong
    GET /_copy?bucket=B&to=FOLDER                           writes all objects of a bucket below a folder
    GET /_bucket?name=B                                     makes a bucket
    GET /_waiting                                           how many requests wait, and how many faults nobody met yet

what: busy (503, nothing is done), lost (done, but the connection ends without an answer), cut (ends in the middle of the
request), slow (done three seconds later), forget (If-None-Match is overlooked), wait (nothing happens until `/_resume`).

Google's XML protocol is alike but for who asks and for the header of a put if absent, which are translated: a stand-in for its
stores.
"""
import contextlib
import io
import os
import socket
import sys
import threading
import time
import urllib.parse

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"

# Signatures aren't looked at.
SOMEBODY = "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


class Server:
    def __init__(self):
        self.moto = DomainDispatcherApplication(create_backend_app)
        self.lock, self.faults, self.resumed = threading.Lock(), [], threading.Event()
        # moto looks for the object and puts it in two steps: of two writers both would be told that they were the first.
        self.conditional = threading.Lock()
        self.waiting = 0
        self.client = None

    def __call__(self, environ, answer):
        path = environ["PATH_INFO"]
        if path.startswith("/_"):
            wanted = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))
            self.command(path[2:], wanted)
            facts = b"%d %d" % (self.waiting, sum(fault["times"] for fault in self.faults))
            answer("200 OK", [("Content-Length", str(len(facts)))])
            return [facts]
        asked = path + "?" + environ["QUERY_STRING"]
        return self.serve(environ, answer, self.fault_of(environ["REQUEST_METHOD"], asked))

    def fault_of(self, method, asked):
        with self.lock:
            for fault in self.faults:
                if fault["method"] == method and fault["part"] in asked and fault["times"] > 0:
                    fault["times"] -= 1
                    return fault["what"]
        return None

    def serve(self, environ, answer, fault):
        connection = environ["werkzeug.socket"]
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if fault == "cut":
            environ["wsgi.input"].read(length // 2)
            connection.shutdown(socket.SHUT_RDWR)
            return []
        body = environ["wsgi.input"].read(length) if length else b""
        environ["wsgi.input"] = io.BytesIO(body)
        if not environ.get("HTTP_AUTHORIZATION", "").startswith("AWS4"):
            environ["HTTP_AUTHORIZATION"] = SOMEBODY
        if environ.get("HTTP_X_GOOG_IF_GENERATION_MATCH") == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        if fault == "busy":
            answer("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(SLOW_DOWN)))])
            return [SLOW_DOWN]
        if fault == "forget":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if fault == "slow":
            time.sleep(3)
        if fault == "wait":
            self.wait()
        with self.conditional if "HTTP_IF_NONE_MATCH" in environ else contextlib.nullcontext():
            done = self.moto(environ, answer)
        if fault == "lost":
            list(done)
            connection.shutdown(socket.SHUT_RDWR)
        return done

    def wait(self):
        with self.lock:
            self.waiting += 1
            resumed = self.resumed
        resumed.wait()
        with self.lock:
            self.waiting -= 1

    def command(self, what, wanted):
        if what == "fault":
            with self.lock:
                self.faults.append({**wanted, "times": int(wanted["times"])})
        elif what == "resume":
            with self.lock:
                self.faults.clear()
                self.resumed.set()
                self.resumed = threading.Event()
        elif what == "bucket":
            self.client.create_bucket(Bucket=wanted["name"])
        elif what == "copy":
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=wanted["bucket"])
            for key in [found["Key"] for page in pages for found in page.get("Contents", [])]:
                path = os.path.join(wanted["to"], key)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                self.client.download_file(wanted["bucket"], key, path)


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_):
        pass


def main():
    import boto3

    os.environ.update(AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1")
    server = Server()
    listening = make_server("127.0.0.1", 0, server, threaded=True, request_handler=Quiet)
    server.client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{listening.port}")
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    print(listening.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
