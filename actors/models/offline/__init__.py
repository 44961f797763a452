"""`offline/extractive`: a rule-based stand-in for a language model, for machines without network or key.

It is not a language model. It reads the requests that DSPy programs make, finds words of the task in the text it is
given, and quotes lines. In the rlm route it writes Python that searches the attached files and cites what it finds.
It knows no fact and contains no answer.
"""

from actors.models.offline.model import OFFLINE_PREFIX, OfflineModel

__all__ = ["OFFLINE_PREFIX", "OfflineModel"]
