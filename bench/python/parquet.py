"""Reads a Parquet file of samples with pyarrow: prints row count, and count and sum of round trips."""

import json
import sys

import pyarrow.compute as pc
import pyarrow.parquet as pq

table = pq.read_table(sys.argv[1])
rtt = table["rtt_ns"]
print(json.dumps({"rows": table.num_rows, "count": pc.count(rtt).as_py(), "sum": pc.sum(rtt).as_py()}))
