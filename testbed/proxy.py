"""A TCP proxy on loopback that makes faults on demand: connections that are cut in the middle of a message, half-open, slow
or refused. Faults hold for connections that are open and for new ones."""
import socket, threading, time


class Proxy:
    def __init__(self, port):
        self.target, self.lock, self.open = ("127.0.0.1", port), threading.Lock(), set()
        self.stalled, self.refuse, self.rate, self.cut_after, self.closed = False, False, None, None, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.closed:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                if self.refuse:
                    raise ConnectionRefusedError()
                server = socket.create_connection(self.target, 10)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            with self.lock:
                self.open |= {client, server}
            for pair in ((client, server, False), (server, client, True)):
                threading.Thread(target=self.pump, args=pair, daemon=True).start()

    def pump(self, source, target, from_server):
        try:
            while True:
                some = source.recv(65536)
                while self.stalled and not self.closed:
                    time.sleep(0.02)
                if not some:
                    break
                if from_server and self.cut_after is not None:
                    some, self.cut_after = some[:self.cut_after], self.cut_after - len(some)
                    if self.cut_after <= 0:
                        self.cut_after = None
                        target.sendall(some)
                        self.cut()
                        break
                target.sendall(some)
                if self.rate:
                    time.sleep(len(some) / self.rate)
        except OSError:
            pass
        self.end(source)
        self.end(target)

    def end(self, s):
        with self.lock:
            self.open.discard(s)
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        s.close()

    def cut(self):
        with self.lock:
            some = list(self.open)
        for s in some:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def resume(self):
        self.stalled, self.refuse, self.rate, self.cut_after = False, False, None, None

    def stop(self):
        self.closed = True
        self.resume()
        self.listener.close()
        self.cut()
