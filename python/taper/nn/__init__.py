"""Neural-network building blocks, shaped like torch.nn."""
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from . import functional, init
from .modules import *  # noqa: F401,F403
from .modules import GRU, RNN, GRUCell, LSTM, LSTMCell, Module, ModuleDict, ModuleList, ParameterDict, ParameterList, RNNBase, RNNCell, RNNCellBase, Sequential
from .modules import Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer
from . import attention, modules, parallel, parameter, utils
from .parallel import DataParallel
