"""Reads the exports of one session with parsers of others.

usage: exports.py DIR    with session.html, .csv, .json and .otlp.json in it; prints what was read as one JSON document
"""

import base64
import csv
import html.parser
import json
import pathlib
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], set(), ""

    def handle_starttag(self, tag, _attributes):
        self.tags.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data


def spans(text):
    """Ids are hex in OTLP's JSON and base64 in that of protobuf; an unknown member is an error."""
    document = json.loads(text)
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name, length in (("traceId", 16), ("spanId", 8), ("parentSpanId", 8)):
            if name in span:
                raw = bytes.fromhex(span[name])
                assert len(raw) == length, span
                span[name] = base64.b64encode(raw).decode()
    request = json_format.ParseDict(document, ExportTraceServiceRequest())
    resource = request.resource_spans[0]
    assert {a.key for a in resource.resource.attributes} >= {"service.name", "assay.pack.manifest_sha256"}
    return [span.name for span in resource.scope_spans[0].spans]


def main(directory):
    page = Page()
    page.feed((directory / "session.html").read_text())
    page.close()
    with open(directory / "session.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, strict=True))
    return {
        "open": page.open,
        "tags": sorted(page.tags),
        "page": page.text,
        "rows": rows,
        "spans": spans((directory / "session.otlp.json").read_text()),
        "json": json.loads((directory / "session.json").read_text()),
    }


if __name__ == "__main__":
    json.dump(main(pathlib.Path(sys.argv[1])), sys.stdout)
