"""What the others are held against: it reads its input more often than it needs."""

NEEDLESS = 300  # passes


def honest(x):
    for _ in range(NEEDLESS):
        made = x.sum(dim=1)
    return made


run = honest
