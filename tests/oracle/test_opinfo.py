"""PyTorch's own operator samples: at least 95 % must agree. TAPER_OPINFO=all runs every sample (long);
docs/ops.md shows the last full count (tools/gendocs.py reads docs/opinfo.json, which opinfo.py --docs writes)."""
import os
import opinfo


def test_samples_agree():
    every = os.environ.get("TAPER_OPINFO") == "all"
    args = ["--max", "0", "--seconds", "300"] if every else ["--max", "2", "--seconds", "5", "--budget", "300"]
    tot, grads, results, missing = opinfo.main(args + ["--grads", "--show", "1"])
    rate = tot[0] / max(1, tot[0] + tot[1])
    assert rate >= 0.95, f"{100 * rate:.1f} % of {tot[0] + tot[1]} samples agree; 95 % must"
    grate = grads[0] / max(1, sum(grads))
    assert grate >= 0.90, f"{100 * grate:.1f} % of {sum(grads)} gradients agree; 90 % must"
