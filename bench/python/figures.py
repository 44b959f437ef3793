"""Computes figures of round trips with pandas, from Roedlach/Vock CSV or from dwell's Parquet.

Usage: figures.py FILE. Prints one JSON object. "seconds" excludes the start of Python and the import
of pandas.
"""

import json
import sys
import time

import numpy as np
import pandas as pd

path = sys.argv[1]
start = time.perf_counter()
if path.endswith(".parquet"):
    values = pd.read_parquet(path, columns=["rtt_ns"])["rtt_ns"]
    scale = 1
else:
    # Without skipinitialspace, the blanks before NaN turn the whole column into text.
    values = pd.read_csv(path, skipinitialspace=True).iloc[:, 1]
    scale = 1e9
values = values.dropna().to_numpy()
counts, _ = np.histogram(values, bins=1200)
figures = {
    "count": int(values.size),
    "min": float(values.min() * scale),
    "mean": float(values.mean() * scale),
    "max": float(values.max() * scale),
    "percentiles": [float(v * scale) for v in np.percentile(values, [50, 90, 95, 99, 99.9])],
    "histogram": int(counts.sum()),
}
figures["seconds"] = time.perf_counter() - start
print(json.dumps(figures))
