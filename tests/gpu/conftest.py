import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tiny models run faster on one thread, far faster where other work shares the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
