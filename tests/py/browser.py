"""Drives a headless Chromium over its debugging pipe, with nothing but the standard library.

    with Browser() as b:
        page = b.open("/path/to/page.html", width=400)
        page.eval("document.title"); page.console; page.shot("out.png")
"""
import base64, json, os, select, shutil, subprocess, tempfile, time, unittest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find():
    if os.environ.get("TAPER_SANITIZED"):
        raise unittest.SkipTest("a browser does not start under a preloaded sanitizer")
    exe = os.environ.get("TAPER_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if not exe:
        raise unittest.SkipTest("no Chromium here")
    return exe


class Browser:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="taper_browser_")
        r_in, w_in = os.pipe()
        r_out, w_out = os.pipe()

        def wire():  # the browser reads commands from 3 and answers on 4
            a, b = os.dup(r_in), os.dup(w_out)
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.p = subprocess.Popen([find(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
                                   "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", "--user-data-dir=" + self.dir,
                                   "about:blank"],
                                  preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(r_in)
        os.close(w_out)
        self.w, self.r, self.buf, self.n, self.events = w_in, r_out, b"", 0, []

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        try:
            self.send("Browser.close")
        except Exception:
            pass
        try:
            self.p.wait(10)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
        os.close(self.w)
        os.close(self.r)
        shutil.rmtree(self.dir, ignore_errors=True)

    def read(self, deadline):
        while b"\0" not in self.buf:
            if not select.select([self.r], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.r, 1 << 20)
            if not got:
                raise RuntimeError("the browser is gone")
            self.buf += got
        msg, self.buf = self.buf.split(b"\0", 1)
        return json.loads(msg)

    def send(self, method, session=None, timeout=120, **params):
        self.n += 1
        msg = {"id": self.n, "method": method, "params": params}
        if session:
            msg["sessionId"] = session
        os.write(self.w, json.dumps(msg).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            m = self.read(deadline)
            if m.get("id") == self.n:
                if "error" in m:
                    raise RuntimeError(f"{method}: {m['error']}")
                return m["result"]
            self.events.append(m)

    def open(self, path, width=1280, height=900, dark=False, script=True):
        return Page(self, path, width, height, dark, script)


class Page:
    def __init__(self, b, path, width, height, dark, script):
        self.b = b
        target = b.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = b.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(domain + ".enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        if not script:
            self.send("Emulation.setScriptExecutionDisabled", value=True)
        self.send("Page.navigate", url="file://" + os.path.abspath(path))
        deadline = time.monotonic() + 120
        while not any(e.get("method") == "Page.loadEventFired" and e.get("sessionId") == self.session for e in b.events):
            b.events.append(b.read(deadline))

    def send(self, method, **params):
        return self.b.send(method, self.session, **params)

    def eval(self, js):
        r = self.send("Runtime.evaluate", expression=js, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in r, r["exceptionDetails"]
        return r["result"].get("value")

    @property
    def console(self):
        """Everything the page complained about: exceptions, console messages, blocked loads, dialogs."""
        self.eval("1")
        bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Page.javascriptDialogOpening")
        return [e for e in self.b.events if e.get("sessionId") == self.session and e.get("method") in bad]

    def type(self, text):
        self.send("Input.insertText", text=text)

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, **({"text": key} if kind == "keyDown" and len(key) == 1 else {}))

    def click(self, selector):
        x, y = self.eval("(function(){var e=document.querySelector(%s);e.scrollIntoView({block:'center'});var r=e.getBoundingClientRect();"
                         "return [r.x+r.width/2,r.y+r.height/2];})()" % json.dumps(selector))
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def shot(self, path, selector=None, height=None):
        params = {}
        if selector:
            x, y, w, h = self.eval("(function(){var r=document.querySelector(%s).getBoundingClientRect();return [r.x+scrollX,r.y+scrollY,r.width,r.height];})()"
                                   % json.dumps(selector))
            params = {"clip": {"x": x, "y": y, "width": w, "height": min(h, height or h), "scale": 1}, "captureBeyondViewport": True}
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.send("Page.captureScreenshot", format="png", **params)["data"]))
