"""What the inputs and results of an exported graph stand for."""
import dataclasses
import enum


class InputKind(enum.Enum):
    USER_INPUT, PARAMETER, BUFFER, CONSTANT_TENSOR, CUSTOM_OBJ, TOKEN = range(1, 7)


class OutputKind(enum.Enum):
    USER_OUTPUT, LOSS_OUTPUT, BUFFER_MUTATION, GRADIENT_TO_PARAMETER, GRADIENT_TO_USER_INPUT, USER_INPUT_MUTATION, TOKEN = range(1, 8)


@dataclasses.dataclass
class TensorArgument:
    name: str


@dataclasses.dataclass
class SymIntArgument:
    name: str


@dataclasses.dataclass
class ConstantArgument:
    name: str
    value: object


@dataclasses.dataclass
class InputSpec:
    kind: InputKind
    arg: object
    target: object = None
    persistent: object = None


@dataclasses.dataclass
class OutputSpec:
    kind: OutputKind
    arg: object
    target: object = None


@dataclasses.dataclass
class ExportBackwardSignature:
    gradients_to_parameters: dict
    gradients_to_user_inputs: dict
    loss_output: str


@dataclasses.dataclass
class ExportGraphSignature:
    """input_specs and output_specs, in the order of the graph's placeholders and results; the properties are views of them."""
    input_specs: list
    output_specs: list

    def _targets(self, kind):
        return tuple(s.target for s in self.input_specs if s.kind == kind)

    def _written(self, kind):
        return {s.arg.name: s.target for s in self.output_specs if s.kind == kind}

    def _named(self, kind):
        return {s.arg.name: s.target for s in self.input_specs if s.kind == kind}

    parameters = property(lambda self: self._targets(InputKind.PARAMETER))
    buffers = property(lambda self: self._targets(InputKind.BUFFER))
    non_persistent_buffers = property(lambda self: tuple(s.target for s in self.input_specs if s.kind == InputKind.BUFFER and s.persistent is False))
    lifted_tensor_constants = property(lambda self: self._targets(InputKind.CONSTANT_TENSOR))
    inputs_to_parameters = property(lambda self: self._named(InputKind.PARAMETER))
    inputs_to_buffers = property(lambda self: self._named(InputKind.BUFFER))
    inputs_to_lifted_tensor_constants = property(lambda self: self._named(InputKind.CONSTANT_TENSOR))
    user_inputs = property(lambda self: tuple(s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name for s in self.input_specs
                                              if s.kind == InputKind.USER_INPUT))
    user_outputs = property(lambda self: tuple(s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name for s in self.output_specs
                                               if s.kind == OutputKind.USER_OUTPUT))
    buffers_to_mutate = property(lambda self: self._written(OutputKind.BUFFER_MUTATION))
    user_inputs_to_mutate = property(lambda self: self._written(OutputKind.USER_INPUT_MUTATION))
    backward_signature = property(lambda self: None)
