"""More loops within one another than Python compiles, in a text that parses."""
# problem: chain
# expect: refused
# reasons: unparsable
# ruff: noqa


class ModelNew:
    def forward(self, x):
        for _ in range(1):
            for _ in range(1):
                for _ in range(1):
                    for _ in range(1):
                        for _ in range(1):
                            for _ in range(1):
                                for _ in range(1):
                                    for _ in range(1):
                                        for _ in range(1):
                                            for _ in range(1):
                                                for _ in range(1):
                                                    for _ in range(1):
                                                        for _ in range(1):
                                                            for _ in range(1):
                                                                for _ in range(1):
                                                                    for _ in range(1):
                                                                        for _ in range(1):
                                                                            for _ in range(1):
                                                                                for _ in range(1):
                                                                                    for _ in range(1):
                                                                                        for _ in range(1):
                                                                                            return x
