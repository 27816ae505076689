"""Each rank takes what it can run first: I, then F, then W. That is one step longer than ZB-H1.

Must get: ZB-H1 takes 3m+p-1
Must not get: with W
"""


def zero_bubble_order(rank, stages, micro_batches):
    p, m = stages, micro_batches
    f, i, w = [0] * p, [0] * p, [0] * p
    rows = [[] for _ in range(p)]
    while min(w) < m:
        had_f, had_i = list(f), list(i)
        for r in range(p):
            kept = had_f[r] - w[r] < min(p, m) and had_f[r] - had_i[r] < p - r
            if had_i[r] < had_f[r] and (r == p - 1 or had_i[r + 1] > had_i[r]):
                rows[r].append(f"I{i[r]}")
                i[r] += 1
            elif had_f[r] < m and (r == 0 or had_f[r - 1] > had_f[r]) and kept:
                rows[r].append(f"F{f[r]}")
                f[r] += 1
            elif w[r] < had_i[r]:
                rows[r].append(f"W{w[r]}")
                w[r] += 1
    return rows[rank]
