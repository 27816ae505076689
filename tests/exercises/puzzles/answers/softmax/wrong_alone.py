# wrong: no rank sent a message
def softmax(x):
    e = exp(x - x.max())
    return e / e.sum()
