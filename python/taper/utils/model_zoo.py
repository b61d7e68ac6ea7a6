"""The older name of torch.hub's download."""
from ..hub import load_state_dict_from_url as load_url, tqdm  # noqa: F401
