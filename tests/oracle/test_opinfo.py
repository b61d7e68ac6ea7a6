"""PyTorch's own operator samples, gradients of them, and its wrong inputs. Every difference must be explained by a row
of exceptions.py. TAPER_OPINFO=all (make oracle-full) runs every sample and also wants every row of that table to be
needed; docs/ops.md shows its counts (opinfo.py --docs writes docs/opinfo.json, tools/gendocs.py reads it)."""
import os
import opinfo


def test_samples_agree():
    every = os.environ.get("TAPER_OPINFO") == "all"
    args = ["--max", "0", "--seconds", "900", "-j", "1"] if every else ["--max", "2", "--seconds", "5", "--budget", "300"]
    if os.environ.get("TAPER_OPINFO_DOCS"):
        args.append("--docs")
    tot, grads, errors, results, missing = opinfo.main(args + ["--grads", "--show", "1" if every else "0"] + ["--counts"] * every)
    unknown, used = opinfo.judge(results)
    assert not unknown, f"{len(unknown)} differences that tests/oracle/exceptions.py does not list:\n" + "\n".join(unknown[:40])
    rate = tot[0] / max(1, tot[0] + tot[1])
    assert rate >= 0.95, f"{100 * rate:.1f} % of {tot[0] + tot[1]} samples agree; 95 % must"
    assert tot[0] > 8000 and grads[0] > 500 and errors[0] > 300, (tot, grads, errors)
    if every:
        idle = [e for e, n in zip(opinfo.EXCEPTIONS, used) if not n]
        assert not idle, f"exceptions that explain nothing any more: {idle}"
        cut = [k for k, r in results.items() if r.get("cut")]
        assert not cut, f"not finished in time: {cut}"
