"""Where Python's libraries and libcurl would connect for each URL.

Reads a JSON string a line, writes a JSON list of [parser, host] a line. With `addresses`, reads hosts and writes the
address that the C library makes of each without asking anybody, or else the name as it is looked up. With `parsers`,
writes their names.
"""

import ctypes, ctypes.util, http.client, importlib, json, re, socket, sys, urllib.parse, urllib.request

APPENDIX_B = re.compile(r"^(([^:/?#]+):)?(//([^/?#]*))?([^?#]*)(\?([^#]*))?(#(.*))?", re.S)


def rfc3986(url):
    parts = APPENDIX_B.match(url)
    scheme, authority = parts.group(2), parts.group(4)
    if authority is None or scheme and not re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return None
    host = authority.rpartition("@")[2]
    bracketed = re.match(r"\[([^\]]*)\]", host)
    return bracketed.group(1) if bracketed else host.partition(":")[0]


def urllib_split(url):
    return urllib.parse.urlsplit(url).hostname


def urllib_request(url):
    request = urllib.request.Request(url)
    if request.type not in ("http", "https", "ftp") or not request.host:
        return None
    # What is asked for without a host is asked of this machine.
    return http.client.HTTPConnection(request.host).host or "localhost"


PARSERS = {"rfc3986": rfc3986, "urlsplit": urllib_split, "urllib": urllib_request}



def optional(name, module, parse):
    """Adds a parser if its library is there; whoever asks for the names of all sees which are not."""
    try:
        library = importlib.import_module(module)
    except ImportError:
        return
    PARSERS[name] = lambda url: parse(library, url)


optional("urllib3", "urllib3.util", lambda util, url: util.parse_url(url).host)
optional("requests", "requests", lambda requests, url: PARSERS["urllib3"](requests.Request("GET", url).prepare().url))
optional("httpx", "httpx", lambda httpx, url: httpx.URL(url).host)
optional("httpx2", "httpx2", lambda httpx, url: httpx.URL(url).host)
optional("yarl", "yarl", lambda yarl, url: yarl.URL(url).host)


def library(*names):
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return None


def libcurl():
    curl = library("libcurl.so.4", "libcurl-gnutls.so.4", ctypes.util.find_library("curl") or "libcurl.dylib")
    if curl is None or not hasattr(curl, "curl_url"):
        return
    idn = library("libidn2.so.0", ctypes.util.find_library("idn2") or "libidn2.dylib")
    curl.curl_url.restype = ctypes.c_void_p
    curl.curl_url_cleanup.argtypes = [ctypes.c_void_p]
    curl.curl_url_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    curl.curl_url_get.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint]
    curl.curl_free.argtypes = [ctypes.c_void_p]
    whole, host, guess = 0, 5, 1 << 9

    def ascii(name):
        if idn is None or name.isascii():
            return name.decode()
        out = ctypes.c_char_p()
        for flags in (4 | 1, 8 | 1):
            if idn.idn2_lookup_ul(name, ctypes.byref(out), flags) == 0:
                return out.value.decode()
        return None

    def parser(flags):
        def parse(url):
            handle = curl.curl_url()
            found = ctypes.c_void_p()
            try:
                if "\0" in url or curl.curl_url_set(handle, whole, url.encode(), flags):
                    return None
                if curl.curl_url_get(handle, host, ctypes.byref(found), 0):
                    return None
                name = ctypes.string_at(found.value)
                curl.curl_free(found)
                return ascii(name)
            finally:
                curl.curl_url_cleanup(handle)

        return parse

    PARSERS["curl"] = parser(0)
    PARSERS["curl, any text"] = parser(guess)


def address(host):
    host = host.strip("[]")
    try:
        name = host.encode("idna").decode().lower()
    except UnicodeError:
        name = host.lower()
    try:
        return socket.getaddrinfo(name.encode(), None, flags=socket.AI_NUMERICHOST)[0][4][0]
    except (OSError, ValueError):
        return name


def readings(url):
    found = []
    for name, parse in PARSERS.items():
        try:
            host = parse(url)
        except Exception:
            continue
        if host:
            found.append([name, host.decode() if isinstance(host, bytes) else host])
    return found


libcurl()
if sys.argv[1:] == ["parsers"]:
    print(json.dumps(list(PARSERS)))
else:
    answer = address if sys.argv[1:] == ["addresses"] else readings
    for line in sys.stdin.buffer:
        print(json.dumps(answer(json.loads(line))))
