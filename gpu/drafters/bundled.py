"""The drafter that ships with the package, for the bundled target: an EAGLE head mixed with the running text's n-grams.

`data/smollm2-135m-eagle.json` is its card: the command that made it, the time it took, its held-out acceptance.
"""

from __future__ import annotations

from pathlib import Path

from gpu.bundled import NAME
from gpu.drafters import eagle
from gpu.drafters.mixture import Mixture
from gpu.drafters.ngram import NGram
from gpu.models import LoadedModel

FILE = Path(__file__).parent / "data" / "smollm2-135m-eagle.safetensors"
WEIGHTS, CONFIDENCE = (0.95, 0.05), 1.0  # of the head and the 4-grams, chosen on text that no training or report uses


def from_spec(target: LoadedModel, argument: str = "", pad_vocab: bool = False) -> Mixture:
    """Drafter "bundled". Raises ValueError for any target but the bundled one."""
    if argument:
        raise ValueError(f"drafter bundled:{argument}: it takes no argument")
    if target.name != NAME:
        raise ValueError(f"the bundled drafter was trained for {NAME}, not for {target.name}; see mdsd train-drafter")
    return Mixture([eagle.load(FILE, target), NGram(target.vocab_size)], list(WEIGHTS), CONFIDENCE)
