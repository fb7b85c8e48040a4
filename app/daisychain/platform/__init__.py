"""The only place that touches the browser: one interface, a browser and a CPython face behind it.

Everything above imports from here and never asks where it runs.  ``browser`` speaks to the page
through Pyodide; ``cpython`` does the same things with the standard library, for tests and scripts.
Both define the same functions with the same signatures (a test compares them).
"""

import sys

from daisychain.platform.common import (
    PAGE_EVENTS,
    PageParameters,
    describe_user_agent,
    monotonic_ms,
    parse_page_url,
    read_resource,
    safe_file_name,
    sleep_ms,
)

if sys.platform == "emscripten":
    from daisychain.platform import browser as face
else:
    from daisychain.platform import cpython as face

WakeLock = face.WakeLock
clear_records = face.clear_records
cpu_count = face.cpu_count
device_name = face.device_name
fetch_bytes = face.fetch_bytes
is_visible = face.is_visible
memory_bytes = face.memory_bytes
on_page_event = face.on_page_event
page_url = face.page_url
publish_state = face.publish_state
put_record = face.put_record
replace_page_url = face.replace_page_url
report_failure = face.report_failure
save_file = face.save_file
start_worker = face.start_worker
storage_get = face.storage_get
storage_remove = face.storage_remove
storage_set = face.storage_set

__all__ = [
    "PAGE_EVENTS",
    "PageParameters",
    "WakeLock",
    "clear_records",
    "cpu_count",
    "describe_user_agent",
    "device_name",
    "fetch_bytes",
    "is_visible",
    "memory_bytes",
    "monotonic_ms",
    "on_page_event",
    "page_url",
    "parse_page_url",
    "publish_state",
    "put_record",
    "read_resource",
    "replace_page_url",
    "report_failure",
    "safe_file_name",
    "save_file",
    "sleep_ms",
    "start_worker",
    "storage_get",
    "storage_remove",
    "storage_set",
]
