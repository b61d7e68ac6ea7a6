"""Tables of steps for the generator that need no more than names: {n} a tensor, {w} another one, {e} one with exact values,
{k} a small integer, {x} a number, {s} a size, {v} a new name. A line that begins with four blanks lies inside the one before it."""

VALUES = (  # (text, how its shape follows from {n}: "same", "scalar" or None; exact)
    ("torch.complex({n}.float(), {n}.float()).abs()", "same", False), ("torch.view_as_real(torch.complex({n}.float(), {n}.float()))", None, False), ("({n} * 1j).imag", "same", False),
    ("torch.complex({n}.float(), -{n}.float()).conj().real", "same", False), ("torch.polar({n}.float().abs(), {n}.float()).angle()", "same", False), ("torch.fft.fft({n}.float()).real", "same", False),
    ("{n}.topk(1, dim=0).values", None, False), ("{n}.sort(dim=-1, descending=True)[0]", "same", False), ("torch.unique({e})", None, True), ("{e}.nonzero()", None, True), ("torch.where({e} > 0)[0]", None, True),
    ("torch.zeros_like({n}).scatter_add(0, torch.zeros_like({n}, dtype=torch.int64), {n})", "same", False), ("{n}.index_put((torch.tensor([0]),), torch.tensor({x}, dtype={n}.dtype), accumulate=True)", "same", False),
    ("{n}.masked_select({e} > 0)", None, False), ("torch.diff({n}, dim=0)", None, True), ("torch.cumprod({n}, 0)", "same", False), ("torch.std({n}, dim=0, correction=0)", None, False), ("torch.median({e})", "scalar", True),
    ("{n}.logcumsumexp(0)", "same", False), ("torch.nn.functional.cross_entropy({n}.reshape(1, -1), torch.tensor([0]))", "scalar", False), ("torch.nn.functional.mse_loss({n}, {n} * 2)", "scalar", False),
    ("torch.nn.functional.huber_loss({n}, {n} * 3)", "scalar", False), ("torch.nn.functional.smooth_l1_loss({n}, {n}.detach() + {x})", "scalar", False), ("torch.nn.functional.log_softmax({n}, 0)", "same", False),
    ("torch.nn.functional.normalize({n}, dim=0)", "same", False), ("torch.nn.functional.one_hot({e}.abs().long() % 3, 3)", None, True), ("torch.nn.functional.interpolate({n}.reshape(1, 1, -1), scale_factor=2)", None, False),
    ("torch.nn.functional.linear({n}, {n})", None, False), ("torch.nn.functional.threshold({n}, 0.5, 2.0)", "same", True), ("torch.nn.functional.glu(torch.cat([{n}, {n}], -1))", "same", False),
    ("torch.nn.functional.scaled_dot_product_attention({n}.reshape(1, 1, -1, 1), {n}.reshape(1, 1, -1, 1), {n}.reshape(1, 1, -1, 1))", None, False), ("torch.nn.functional.unfold({n}.reshape(1, 1, 1, -1), 1)", None, False),
    ("torch.tensor_split({n}, 2)[-1]", None, True), ("torch.meshgrid({n}.reshape(-1), {n}.reshape(-1), indexing='ij')[0]", None, True), ("torch.cartesian_prod({n}.reshape(-1), torch.tensor([1.0, 2.0], dtype={n}.dtype))", None, True),
    ("torch.block_diag({n}, {n})", None, True), ("{n}.swapaxes(0, -1)", None, True), ("{n}.ravel()", None, True), ("{n}.unflatten(0, (1, -1))", None, True), ("{n}.squeeze(0)", None, True), ("{n}.expand_as({n})", "same", True),
    ("torch.atleast_2d({n})", None, True), ("{n}.mH", None, True), ("{n}.adjoint()", None, True), ("{n}.rot90()", None, True), ("{n}.diag_embed()", None, True), ("torch.diag({n})", None, True), ("{n}.trace()", "scalar", True),
    ("torch.select_scatter({n}, {n}[0] * 2, 0, 0)", "same", True), ("torch.slice_scatter({n}, {n}[:1] + 1, 0, 0, 1)", "same", True), ("torch.diagonal_scatter({n}, torch.zeros_like({n}.diagonal()))", "same", True),
    ("torch.searchsorted(torch.tensor([0.0, 1.0, 2.0], dtype={e}.dtype), {e})", "same", True), ("torch.bucketize({e}, torch.tensor([0.0, 1.0], dtype={e}.dtype))", "same", True), ("{e}.argsort(0, stable=True)", "same", True),
    ("torch.isin({e}, torch.tensor([0.0, 1.0], dtype={e}.dtype))", "same", True), ("torch.count_nonzero({e})", "scalar", True), ("torch.bincount({e}.abs().long().reshape(-1))", None, True), ("torch.histc({e}.float(), 3)", None, True),
    ("torch.copysign({n}, {n} * -1)", "same", True), ("torch.hypot({n}, {n})", "same", False), ("torch.logaddexp({n}, {n})", "same", False), ("torch.xlogy({n}, {n}.abs() + 1)", "same", False), ("torch.heaviside({e}, {e})", "same", True),
    ("torch.fmod({e}, {x})", "same", True), ("torch.true_divide({e}, 4)", "same", True), ("torch.div({e}, {x}, rounding_mode='trunc')", "same", True), ("torch.div({e}, {x}, rounding_mode='floor')", "same", True), ("divmod({e}, 2)[1]", "same", True),
    ("torch.rsub({n}, {x})", "same", True), ("{x} - {n}", "same", True), ("{n}.__rsub__({x})", "same", True), ("2 ** {n}", "same", False), ("{n}.abs() ** 0.5", "same", False), ("torch.float_power({n}, 2)", "same", False),
    ("{n}.abs().pow({n})", "same", False), ("{n}.to(torch.float8_e4m3fn).float()", "same", False), ("torch.addmm({n}, {n}, {n})", None, False), ("torch.baddbmm({n}, {n}, {n})", None, False), ("torch.bmm({n}[None], {n}.mT[None])", None, False),
    ("torch.mv({n}, {n}[0])", None, False), ("torch.dot({n}.reshape(-1), {n}.reshape(-1))", "scalar", False), ("torch.kron({n}, {n})", None, False), ("torch.cross({n}, {n} * 2, dim=-1)", "same", False), ("torch.cdist({n}, {n})", None, False),
    ("torch.linalg.vector_norm({n}, ord={k})", "scalar", False), ("torch.linalg.norm({n})", "scalar", False), ("torch.triu({n}, 1)", "same", True), ("torch.vander({n}.reshape(-1)[:2])", None, False), ("torch.trapz({n})", None, True),
    ("torch.aminmax({n}).max", "scalar", True), ("torch.max({n}, 0)", None, True), ("{n}.min(dim=0, keepdim=True)[0]", None, True), ("torch.var_mean({n})[1]", "scalar", False), ("torch.nanmean({n})", "scalar", False), ("{n}.nansum()", "scalar", True),
    ("torch.sum({n}, dtype=torch.float64)", "scalar", True), ("{n}.sum((0, -1))", None, True), ("{n}.mean(dtype=torch.float64)", "scalar", False), ("torch.any({e} > 0, dim=0)", None, True), ("{e}.all()", "scalar", True),
    ("torch.quantile({n}.float(), 0.5)", "scalar", False), ("{n}.kthvalue(1, 0).values", None, True), ("{n}.mode(0).values", None, True), ("torch.renorm({n}, 2, 0, 1.0)", "same", False), ("torch.nn.functional.batch_norm({n}.reshape(1, -1, 1), None, None, training=True)", None, False),
    ("torch.nn.functional.group_norm({n}.reshape(1, 1, -1), 1)", None, False), ("torch.nn.functional.avg_pool1d({n}.reshape(1, 1, -1), 2)", None, False), ("torch.nn.functional.adaptive_avg_pool1d({n}.reshape(1, 1, -1), 2)", None, False),
    ("torch.nn.functional.conv1d({n}.reshape(1, 1, -1), torch.ones(1, 1, 2, dtype={n}.dtype), padding=1)", None, False), ("torch.nn.functional.embedding(torch.tensor([0, 0]), {n}.reshape(-1, 1))", None, True), ("{n}.new_tensor([{x}, 1.0])", None, True),
    ("{n}.new_full((2,), {x})", None, True), ("torch.empty({n}.shape, dtype={n}.dtype).copy_({n})", "same", True), ("torch.scalar_tensor({x})", "scalar", True), ("torch.eye({k})", None, True), ("torch.arange({k}, {s} + {k})", None, True),
    ("torch.full(({s}, 2), {x})", None, True), ("torch.zeros({s})", None, True), ("{n}.type(torch.float64)", "same", True), ("{n}.type_as({w})", "same", False), ("{n}.to({w})", "same", False), ("{n}.to(torch.float64, copy=True)", "same", True),
    ("{n}.to({n}.dtype)", "same", True), ("{n}.to('cpu')", "same", True), ("{n}.int()", "same", True), ("{e}.char()", "same", True), ("{e}.to(torch.uint8)", "same", True), ("{n}.positive()", "same", True), ("+{n}", "same", True),
    ("{n}.conj()", "same", True), ("{n}.resolve_conj()", "same", True), ("{n}.real", "same", True), ("{n}.H", None, True), ("{n}.requires_grad_().clone()", "same", True), ("copy.copy({n})", "same", True), ("copy.deepcopy({n}.detach())", "same", True),
    ("torch.utils.checkpoint.checkpoint(lambda q: q * q + {w}.sum(), {n}, use_reentrant=False)", "same", False), ("torch.broadcast_tensors({n}, {n}[:1])[1]", "same", True), ("torch.ones(3)[{k} % 3] * {n}", "same", True),
    ("torch.nn.functional.relu({n}, inplace=True)", "same", True), ("torch.nn.functional.hardswish({n})", "same", False), ("torch.nn.functional.mish({n})", "same", False), ("torch.special.expit({n})", "same", False), ("torch.rsqrt({n}.abs() + 1)", "same", False),
    ("torch.log1p({n}.abs())", "same", False), ("torch.deg2rad({n})", "same", False), ("torch.frac({e})", "same", True), ("torch.sgn({e})", "same", True), ("torch.signbit({e})", "same", True), ("torch.frexp({n}).mantissa", "same", True),
    ("torch.ldexp({n}, torch.tensor(1))", "same", True), ("torch.nextafter({n}, {n} + 1)", "same", False), ("torch.bitwise_and({e}.long(), 3)", "same", True), ("{e}.long() ^ 1", "same", True), ("{e}.long() >> 1", "same", True), ("{e}.long().bitwise_not()", "same", True),
    ("torch.logical_xor({e} > 0, {e} < 1)", "same", True), ("torch.clamp({n}, max={n}.detach().mean())", "same", False), ("torch.clip({n}, {x}, None)", "same", True), ("torch.where({e} > 0)[-1]", None, True), ("torch.take_along_dim({n}, {n}.argsort(0), 0)", "same", False),
    ("{n}[..., None, :]", None, True), ("{n}[True]", None, True), ("{n}[:, None]", None, True), ("{n}[torch.tensor(True)]", None, True), ("{n}[{e} > 0, ...]", None, True), ("{n}[slice(None, None, 2)]", None, True), ("{n}[(0,)]", None, True), ("{n}[[0, -1]]", None, True),
    ("{n}[torch.tensor([[0], [0]])]", None, True), ("{n}[-{k}:]", None, True), ("{n}[:{s} // 2]", None, True), ("{n}[{k}:{k} + 2]", None, True), ("{n}.index_select(0, torch.arange({s}))", None, True), ("torch.as_strided({n}, (1,), (1,), 0)", None, True),
    ("torch.func.vmap(lambda p, q: p * q, in_dims=(0, None))({n}, {x})", "same", True), ("torch.func.jacrev(lambda q: q.sin())({n}.reshape(-1)[:2])", None, False), ("torch.func.grad_and_value(lambda q: q.square().sum())({n})[1]", "scalar", False),
    ("torch.autograd.functional.jacobian(lambda q: q * 2, {n}.reshape(-1)[:2])", None, False), ("torch.autograd.grad([{n}.sum(), ({n} * 2).sum()], {n})[0]", "same", False), ("torch.nn.utils.parameters_to_vector([{n}])", None, True),
    ("torch.stack(list({n})).sum(0)", None, True), ("sum(t.sum() for t in {n})", "scalar", True), ("[t * 2 for t in {n}][0]", None, True), ("torch.hstack(({n}, {n}))", None, True), ("torch.vstack([{n}, {n}])", None, True), ("torch.column_stack([{n}, {n}])", None, True),
    ("functools.reduce(torch.add, {n}.unbind())", None, True), ("torch.einsum('i...,i...->...', {n}, {n})", None, False), ("torch.tensordot({n}, {n}, dims={n}.dim())", "scalar", False), ("torch.from_numpy({n}.detach().numpy()) * 1", "same", True),
    ("torch.frombuffer(bytearray(8), dtype=torch.float32) + 1", None, True), ("torch.asarray({n}.tolist())", None, True), ("torch.tensor({n}.detach())", "same", True), ("torch.tensor([[{x}, {x}]]) * {k}", None, True), ("torch.logspace(0, 1, 3)", None, False),
)

LINES = (  # statements of plain Python around tensors
    ("{v} = {n} if {n}.sum() > 1e6 else {n} + 1",), ("{v} = {k} and {n}",), ("{v} = None or {n}",), ("{v} = {n} if {k} < {s} < 5 else {n} * 2",), ("if ({v} := {n} * 2).dim() > 5:", "    {v} = {n}"),
    ("{v}, q1 = {n}, {w}", "{v}, q1 = q1, {v}"), ("{v}, *_ = {n}, 1, 2",), ("(a1, b1), {v} = (1, 2), {n}",), ("{v} = {n}", "{v} += 1"), ("{v} = {n} * 1", "del {v}", "{v} = {w}"), ("{v} = [{n}] * 3", "{v}[0] = {w}", "{v} = {v}[1]"),
    ("LOG.append(f'{{{s}}} {{{n}.dim():>3}} {{{n}.dtype}}')", "{v} = {n} * 1"), ("LOG.append('%d %s' % ({s}, {n}.dtype))", "{v} = {n}"), ("LOG.append('{{}}'.format({s}))", "{v} = {n} * 1"), ("LOG.append(str({n}.shape))", "{v} = {n}"),
    ("LOG.append(math.floor({s} / 2) + math.ceil({s} * 0.3))", "{v} = {n} * math.sqrt({s})"), ("LOG.append(divmod({s}, 3))", "{v} = {n} + {s} ** 2"), ("LOG.append(round({s} / 3, 2))", "{v} = {n} * ({s} / 3)"), ("LOG.append(min({s}, {k}, 3))", "{v} = {n} * max({s}, 2)"),
    ("LOG.append({s} // -2)", "{v} = {n} * ({s} % -3)"), ("LOG.append(pow({s}, 2, 5))", "{v} = {n}"), ("LOG.append({s} & 3 | {k} ^ 1)", "{v} = {n} * ({s} << 1)"), ("LOG.append(float({s}).is_integer())", "{v} = {n} * float({s})"), ("LOG.append(hash({s}) == {s})", "{v} = {n}"),
    ("LOG.append(list(range({s}))[::-1][:3])", "{v} = {n}"), ("LOG.append([i for i in range({s}) if i % 2][:4])", "{v} = {n} * 1"), ("LOG.append(sorted([{s}, {k}, 2]))", "{v} = {n}"), ("LOG.append(({s}, {k}) < (3, 1))", "{v} = {n}"), ("LOG.append('x' * {k})", "{v} = {n}"),
    ("LOG.append({{{s}: 'a', 3: 'b'}}.get(3))", "{v} = {n} * 1"), ("LOG.append({s} in (2, 3))", "{v} = {n}"), ("LOG.append({s} in range(2, 9, 2))", "{v} = {n}"), ("LOG.append(isinstance({s}, int) and not isinstance({s}, bool))", "{v} = {n}"), ("LOG.append(bool({s} - 3))", "{v} = {n}"),
    ("{v} = {n} * 0", "for i, t in enumerate({n}):", "    {v} = {v} + t.sum() * i"), ("{v} = {n}", "for t in {n}.unbind(0):", "    {v} = {v} + t.sum()", "    if t.dim() > 3:", "        break"), ("{v} = {n}", "for p, q in zip({n}, {n}):", "    {v} = {v} + (p * q).sum()"),
    ("{v} = [*map(lambda q: q * 2, [{n}, {w}])][0]",), ("{v} = [*filter(lambda q: q.dim() < 9, [{n}, {w}])][-1]",), ("{v} = [*itertools.islice(itertools.cycle([{n}, {w}]), 3)][2]",), ("{v} = [*itertools.accumulate([{n}, {n}])][1]",),
    ("{v} = [p * q for p, q in itertools.product([{n}], [1, 2])][1]",), ("{v} = {{i: {n} * i for i in range(3)}}[2]",), ("{v} = tuple(q + 1 for q in ({n}, {w}))[0]",), ("{v} = (lambda *q, **r: q[-1] * r.get('z', 2))({n}, {w})",), ("{v} = star({n}, {w}, by={k})",),
    ("{v} = star(*[{n}, {n}], **{{'by': 2}})",), ("{v} = star({n}, z={w})",), ("{v} = star({n}, 1, 2, 3)",), ("{v} = deep({n}, {k})",), ("{v} = memo({k}) * {n}",), ("{v} = quiet({n})",), ("{v} = kind({n}, Mode.B)",), ("{v} = kind({n}, Mode({k} % 2))",),
    ("{v} = kind({n}, 'c')",), ("{v} = Point({n}).moved(1).x",), ("pt = Point({n}, y={k})", "{v} = dataclasses.replace(pt, x={w}).x"), ("pt = Point({n})", "pt.y += {s}", "LOG.append(pt.y)", "{v} = pt.x"), ("match Point({n}, {k}):", "    case Point(x=q, y=0):", "        {v} = q", "    case Point(y=p):", "        {v} = {n} * p"),
    ("match {{'a': {n}, 'b': {k}}}:", "    case {{'b': 0, **rest}}:", "        {v} = rest['a']", "    case {{'a': q}}:", "        {v} = q * 2"), ("match [{k}, {s}]:", "    case [0 | 1 as q, _]:", "        {v} = {n} * q", "    case [_, int(q)]:", "        {v} = {n} + q"),
    ("{v} = shelf.get({n}.dim(), {n})", "shelf[{k}] = {n}"), ("shelf.clear()", "{v} = {n}"), ("{v} = {n}", "for key in list(shelf):", "    del shelf[key]"), ("{v} = {n} * len(shelf)",), ("{v} = copy.copy([{n}, {w}])[0]",), ("{v} = getattr({n}, 'sin')()",), ("{v} = torch.Tensor.mul({n}, 2)",),
    ("{v} = operator.itemgetter(0)([{n}, {w}])",), ("{v} = operator.methodcaller('mul', 2)({n})",), ("{v} = operator.iadd({n}, 1)",), ("{v} = {n} * 1", "{v} @= {v}.mT"), ("{v} = {n} * 1", "{v} //= 2"), ("{v} = {n} * 1", "{v} **= 2"), ("{v} = {n}.clone()", "{v}[1:], {v}[:1] = {v}[:-1].clone(), 0"),
    ("{v} = {n}.clone()", "{v}[0], {v}[-1] = {v}[-1], {v}[0]"), ("{v} = {n}.clone()", "p1 = {v}[:1]", "{v}.mul_(2)", "LOG.append(p1)"), ("{v} = {n}.clone()", "p1 = {v}.view(-1)", "p2 = p1[1:]", "p2 += 1", "{v} = {v} + p1.sum()"), ("{v} = {n}.clone()", "{v}.unsqueeze_(0).add_(1)"),
    ("{v} = {n}.clone()", "with torch.no_grad():", "    {v}.mul_(2)"), ("{v} = {n}.clone()", "{v}.t_().add_({v})"), ("{v} = {n}.clone()", "torch.add({n}, 1, out={v}[:])"), ("{v} = {n}.clone()", "{v}.as_strided((1,), (1,)).fill_(3)"), ("{v} = {n}.clone()", "{v}.diagonal().fill_(2)"),
    ("{v} = {n}.clone()", "{v}.index_put_((torch.tensor([0, 0]),), torch.ones((), dtype={v}.dtype), accumulate=True)"), ("{v} = {n}.clone()", "{v}.scatter_(0, torch.zeros_like({v}, dtype=torch.int64), {v}, reduce='add')"), ("{v} = {n}.clone()", "{v}.masked_scatter_({e} > 0, {v} * 2)"),
    ("{v} = {n}.clone()", "{v}.squeeze().copy_({v}.sum())"), ("{v} = {n}.clone()", "{v}.real.mul_(2)"), ("{v} = {n}.detach().clone()", "{v}.numpy()[...] = 1"), ("{v} = {n}.expand(2, *{n}.shape).clone()", "{v}[0] = {v}[1] * 2"), ("{v} = {n}.clone()", "{v}.split(1)[0].zero_()"),
    ("{v} = {n}.clone()", "for t in {v}:", "    t.mul_(2)"), ("{v} = {n}.clone()", "{v}.chunk(2)[-1].add_(1)"), ("{v} = {n}.clone()", "{v}.swap_dims = 1"), ("{n}.note = {k}", "{v} = {n} * {n}.note"), ("{v} = {n} * getattr({n}, 'note', 2)",),
    ("try:", "    {v} = {n} * 1", "    raise Stop({k})", "except Stop as e:", "    {v} = {n} * e.args[0]"), ("try:", "    try:", "        raise KeyError('a')", "    finally:", "        LOG.append('f')", "except LookupError:", "    pass", "{v} = {n}"),
    ("for i in range(3):", "    try:", "        if i == 1:", "            continue", "        {v} = {n} * i", "    finally:", "        LOG.append(i)"), ("def early(q):", "    for t in (q, q * 2):", "        try:", "            return t", "        finally:", "            LOG.append('r')", "{v} = early({n})"),
    ("def over(q):", "    try:", "        raise ValueError", "    except ValueError:", "        return q * 2", "    finally:", "        q.add_(1)", "{v} = over({n}.clone())"), ("try:", "    {v} = {n}.reshape(-1, 7, 11)", "except RuntimeError:", "    {v} = {n} * 3"), ("try:", "    {v} = {n}[{s} + 3]", "except IndexError:", "    {v} = {n}"),
    ("try:", "    raise ExceptionGroup('g', [ValueError(1), KeyError(2)])", "except* ValueError as g:", "    LOG.append(len(g.exceptions))", "except* KeyError:", "    LOG.append('k')", "{v} = {n}"), ("try:", "    assert {s} > 99, {s}", "except AssertionError as e:", "    LOG.append(e.args)", "{v} = {n}"),
    ("def gen(q):", "    got = yield q", "    while True:", "        got = yield q * got", "it1 = gen({n})", "next(it1)", "{v} = it1.send(2) + it1.send({k})"), ("it2 = iter([{n}, {w}])", "next(it2)", "{v} = next(it2)", "LOG.append(next(it2, 'end'))"), ("{v} = next(stream) * {n}",), ("{v} = sum(itertools.islice(stream, 2)) * {n}",),
    ("with scaled({k}) as by:", "    {v} = {n} * by"), ("with scaled(2), scaled(3) as by:", "    {v} = {n} * by"), ("{v} = {n}", "with contextlib.suppress(Stop):", "    {v} = {n} * 2", "    raise Stop"), ("old = torch.is_grad_enabled()", "torch.set_grad_enabled(not old)", "{v} = {n} * 2", "torch.set_grad_enabled(old)"),
    ("with torch.no_grad():", "    {v} = {n}.view(-1)", "{v} = {v} * 1"), ("with torch.inference_mode():", "    {v} = {n} * 2", "{v} = {v}.clone()"), ("with torch.autocast('cpu', dtype=torch.bfloat16):", "    {v} = {n}.float().reshape(1, -1) @ {n}.float().reshape(-1, 1)"), ("{v} = {n}.detach()", "{v} -= {n}"),
    ("with torch.enable_grad():", "    {v} = {n}.detach().requires_grad_()", "    ({v} * {v}).sum().backward()", "{v} = {v}.grad"), ("{v} = {n}.detach().clone().requires_grad_()", "with torch.enable_grad():", "    loss = ({v} ** 2).sum()", "torch.autograd.backward(loss, inputs=[{v}])", "with torch.no_grad():", "    {v} -= {v}.grad * 0.5"),
    ("{v} = {n} * 1", "if {v}.requires_grad:", "    {v}.retain_grad()", "    {v}.sum().backward(retain_graph=True)", "    LOG.append({v}.grad)"), ("{v} = {n} * 2", "if {v}.requires_grad:", "    {v}.register_hook(lambda g: g + 1)", "    {v}.register_hook(lambda g: g * 2)"),
    ("{v} = {n}.sum()", "LOG.append(bool({v} > 1e6))"), ("{v} = {n} * int({e}.numel())",), ("{v} = {n}[:int({e}.dim())]",), ("if {e}.sum().item() > 3:", "    {v} = {n} * 2", "else:", "    {v} = {n} * 3"), ("{v} = {n} * {e}.sum().item()",), ("while {e}.sum() < -1e6:", "    pass", "{v} = {n}"),
    ("{v} = [{n}, {w}][int(({e} > 0).any())]",), ("{v} = {n} if {e}.dim() and {e}.max() > 1 else -{n}",) , ("LOG.append(({e} > 0).tolist())", "{v} = {n}"), ("LOG.append({w} is {n} or {w} is not None)", "{v} = {n}"), ("LOG.append(torch.equal({n}, {n}))", "{v} = {n}"), ("LOG.append(torch.allclose({n}, {n}))", "{v} = {n}"),
    ("LOG.append({n}.shape == torch.Size([{k}]))", "{v} = {n}"), ("LOG.append({n}.shape[:1] + (1,))", "{v} = {n}"), ("LOG.append(({n}.shape, len({n}.shape)) == (({k},), 1))", "{v} = {n}"), ("LOG.append(torch.Size([2, *{n}.shape]).numel())", "{v} = {n}"), ("LOG.append(torch.promote_types({n}.dtype, torch.int32))", "{v} = {n}"),
    ("LOG.append(torch.result_type({n}, {x}))", "{v} = {n}"), ("LOG.append(torch.finfo({n}.dtype).bits)", "{v} = {n}"), ("LOG.append(torch.get_default_dtype())", "{v} = {n}"), ("LOG.append(callable({n}.sin))", "{v} = {n}"), ("LOG.append({n}.__class__.__name__)", "{v} = {n}"), ("LOG.append(hasattr({n}, 'nope'))", "{v} = {n}"),
    # an index that is a tensor, a view in eager code; attributes where Python keeps them; what is made at every call
    ("{v} = {n} * 1", "{v}[torch.tensor(0)].mul_(2)"), ("{v} = {n} * 1", "p1 = {v}[torch.tensor(-1)]", "{v}.add_(1)", "LOG.append(p1 * 1)"), ("p1 = {e}.argmax()", "{v} = {n}.reshape(-1)[p1 * 0] * 2"), ("{v} = {n} * 1", "{v}[..., torch.tensor(0)] += 1"),
    ("{n}.note = {k}", "LOG.append({n}.__dict__.get('note'))", "{v} = {n} * 1"), ("{v} = {n} * 1", "{v}.mark = {k}", "LOG.append(sorted(vars({v})))"), ("{v} = {n}.new_tensor([{x}, 1.0])", "{v}.add_(1)"), ("{v} = {n} + {n}.new_tensor({x}).mul_(2)",),
    # layouts: strides that are asked for, windows over a base that is written, results that keep gaps
    ("{v} = torch.empty_strided((2, 2), (1, 1)).fill_({x})", "{v}[0] += 1"), ("{v} = torch.empty_strided({n}.shape, {n}.stride()).fill_({x})", "{v}[:1].mul_(2)"), ("{v} = {n}.new_empty_strided((2, 3), (7, 2)).zero_()", "LOG.append({v}.stride())"),
    ("p2 = {n}.clone().reshape(-1)", "p1 = p2.unfold(0, 2, 1)", "p2[:1] = {x}", "{v} = p1 * 1"), ("p2 = {n}.clone()", "p2 += p2", "{v} = torch.select_scatter(p2, p2[0] * 2, 0, 0)"), ("p2 = torch.complex({n}.float(), {n}.float())", "{v} = p2.real * 1"),
    ("{v} = {n}.clone()", "{v}.unbind(0)[0].mul_(2)", "{v}.chunk(2)[0].add_(1)", "LOG.append({v}.sum().detach() > 1e6)"), ("with torch.inference_mode():", "    p1 = {e}.nonzero()", "LOG.append(p1.is_inference())", "{v} = {n}"), ("{v} = torch._foreach_add([{n}, {w}], 1)[0]",),
    ("p1 = [{n}.clone(), {w}.clone()]", "torch._foreach_mul_(p1, 2)", "{v} = p1[1]"),
    # the standard library's containers and Python's protocols
    ("od = collections.OrderedDict(a={n}, b={w})", "od.move_to_end('a')", "{v} = od.popitem()[1]", "LOG.append(list(od))"), ("dq = collections.deque([{n}, {w}], maxlen=2)", "dq.append({n} * 2)", "dq.rotate(1)", "{v} = dq.popleft()"),
    ("ct = collections.Counter('abca')", "ct['b'] += {k}", "LOG.append(ct.most_common(2))", "{v} = {n} * ct['a']"), ("cm = collections.ChainMap({{'p': {n}}}, {{'p': 1, 'q': {w}}})", "cm['q'] = {n} * 2", "{v} = cm['p'] + cm['q'].sum()", "LOG.append(sorted(cm))"),
    ("ns = types.SimpleNamespace(t={n}, i={k})", "ns.i += 1", "ns.t = ns.t * ns.i", "{v} = ns.t", "LOG.append(sorted(vars(ns)))"), ("df = Deflt(a={n})", "{v} = df['a'] * df['zz']", "LOG.append(sorted(map(str, df)))"), ("ob = Watched()", "ob.t = {n}", "ob.t = ob.t + 1", "{v} = ob.t", "LOG.append(ob.seen)"),
    ("{v} = Typed({n}).twice + Typed.label",), ("wr = weakref.ref({n})", "{v} = wr() * 2"), ("p1 = []", "for i in range(3):", "    p1.append(lambda q: q * (i + 1))", "{v} = p1[0]({n})"), ("p1 = [lambda q, i=i: q + i for i in range(2)]", "{v} = p1[1]({n})"),
    ("co = later({n})", "try:", "    co.send(None)", "except StopIteration as e:", "    {v} = e.value"), ("it3 = steps({n})", "{v} = next(it3) * 1", "try:", "    {v} = it3.throw(KeyError('k'))", "except (KeyError, StopIteration) as e:", "    LOG.append(repr(e))", "LOG.append(list(it3))"),
    ("it4 = steps({n})", "{v} = next(it4) * 1", "it4.close()"), ("it5 = steps({n})", "next(it5)", "torch._dynamo.graph_break()", "{v} = it5.send({k})", "LOG.append(next(it5, None))"), ("{v} = {n}", "for q in steps({n}):", "    {v} = {v} + q", "    break"),
    ("try:", "    for key in (dd := {{'a': 1}}):", "        dd[key + 'b'] = {k}", "except RuntimeError as e:", "    LOG.append(str(e))", "{v} = {n} * len(dd)"), ("p1 = [{n}, {w}]", "for t in p1:", "    if len(p1) < 4:", "        p1.append(t * 2)", "{v} = p1[-1]"),
    ("ss = {{1, 2, {k}}}", "ss ^= {{2, 9}}", "LOG.append((sorted(ss), ss & {{9}}, ss <= {{1, 9}}))", "{v} = {n} * len(ss)"), ("LOG.append(eval('{k} + 1'))", "{v} = {n}"), ("LOG.append(isinstance({k}, bool) or type({k}).__name__)", "{v} = {n} * {k}"), ("{v} = Strange({k} + 1) * {n} + Strange({k})",),
    ("with torch.no_grad():", "    try:", "        {v} = {n} * 2", "        torch._dynamo.graph_break()", "        raise Stop(1)", "    except Stop:", "        {v} = {n} * 3"), ("for i in range(3):", "    with contextlib.suppress(Stop):", "        if i == 1:", "            raise Stop(i)", "        {v} = {n} * i"),
    # parts written one after the other: rows, caches, what is read between the writes
    ("{v} = {n} * 1", "for i in range(len({v}) if {v}.dim() else 0):", "    {v}[i] = {v}[i] * 2"), ("{v} = {n}.clone()", "for i in range(len({v}) - 1 if {v}.dim() else 0):", "    {v}[i] = {v}[i + 1] + {k}"),
    ("{v} = {n}.clone()", "{v}[1:] = {v}[:-1]"), ("{v} = {n} * 2", "p1 = {v}.sum()", "{v}[:1] = p1", "p2 = {v} * 1", "{v}[-1:] += 1", "{v} = {v} + p2"), ("{v} = {n} + 1", "{v}[..., :1] = {v}[..., -1:] * 2", "{v}[..., 1:2] *= 3"),
    ("{v} = torch.zeros(3, *{n}.shape, dtype={n}.dtype)", "for i in range(3):", "    {v}[i] = {n} * i", "    {v}[i:i + 1] += {v}[:1]"), ("p1 = torch.zeros(4, 2, dtype={n}.dtype)", "p1[torch.tensor([{k} % 4])] = {n}.sum()", "p1.index_copy_(0, torch.tensor([1, 2]), p1[2:] + 1)", "{v} = p1 * 2"),
    ("{n}[:1] = {n}[-1:] * 2", "{v} = {n}.sum() + {n}"), ("{n}[..., -1] = {k}", "{v} = {n} * 2", "{n}[..., 0] = 1"), ("p1 = {n}.flatten()", "p1[:2] = p1[-2:].flip(0)", "{v} = p1.sum() + {n}"), ("{v} = {n}.t().clone() if {n}.dim() == 2 else {n}.clone()", "{v}[:1] = {v}[-1:] + 1", "{v}[-1:] = 2"),
    ("{v} = {n} * 1", "p1 = {v}[:1]", "p2 = p1 * 3", "{v}[:1] = 5", "{v} = {v} + p2.sum() + p1.sum()"), ("{v} = torch.cat([{n}, {n}])", "{v}[:len({n})] = {v}[len({n}):] * 2" , "LOG.append({v}._version > 0)"),
    # modes that end behind a break, weak references, memory that is replaced
    ("with contextlib.ExitStack() as es:", "    es.enter_context(torch.no_grad())", "    {v} = {n} * 2", "    torch._dynamo.graph_break()", "    es.callback(lambda: LOG.append('cb'))", "{v} = {v} + {n}"), ("with torch.set_grad_enabled({k} > 1):", "    torch._dynamo.graph_break()", "    {v} = {n} * 2", "LOG.append(torch.is_grad_enabled())"),
    ("p1 = {n} * 2", "wr = weakref.ref(p1)", "torch._dynamo.graph_break()", "{v} = wr() * 1"), ("p1 = {n}.detach().clone()", "p1.data = {n}.detach() * 2", "p1.add_(1)", "{v} = p1 * 1"), ("p1 = {n}.detach().clone()", "p1.set_({n}.detach() * 2)", "{v} = p1 * 1"),
    # classes that keep tensors, arguments that change between calls
    ("class Acc:", "    def __init__(self):", "        self.sum, self.n = 0, 0", "    def __iadd__(self, q):", "        self.sum, self.n = self.sum + q, self.n + 1", "        return self", "ac = Acc()", "ac += {n}", "ac += {n} * 2", "{v} = ac.sum / ac.n"),
    ("def kw(q, *, s=1, **more):", "    return q * s + len(more)", "{v} = functools.partial(kw, s={k})({n}, z=1)"), ("def acc(q, seen=[]):", "    seen.append(1)", "    return q * len(seen)", "{v} = acc({n}) + acc({n})"), ("LOG.append(len(LOG))", "{v} = {n} * (len(LOG) % 3)"),
    ("{v} = {n}.reshape(-1)", "if ({v} := {v}[:2]).numel() > 1:", "    {v} = {v}.flip(0)"), ("match {n}.shape:", "    case [q]:", "        {v} = {n} * q", "    case [q, *_] if q > 2:", "        {v} = {n} + q", "    case _:", "        {v} = {n} - 1"),
    ("{v} = torch.func.functional_call(torch.nn.Identity(), {{}}, ({n},))",), ("{v} = torch.vmap(torch.func.grad(lambda q: q * q))({n}.reshape(-1))",), ("{v} = torch.func.vjp(lambda q: q * {n}.detach(), {n})[1](torch.ones_like({n}))[0]",), ("{v} = torch.func.jacfwd(lambda q: q * q.sum())({n}.reshape(-1)[:2])",),
)

HELPERS = """def star(*q, by=1, **more):
    return q[0] * by + len(q) + sum(t.sum() for t in more.values())

def deep(q, n):
    return q if n <= 0 else deep(q + n, n - 1) * 2

@functools.lru_cache
def memo(k):
    LOG.append(('memo', k))
    return k + 1

@torch.no_grad()
def quiet(q):
    return q * 2

class Mode(enum.Enum):
    A = 0
    B = 1

def kind(q, mode):
    match mode:
        case Mode.A:
            return q
        case Mode.B:
            return q * 2
        case str(name):
            return q + len(name)

class Stop(Exception):
    pass

@dataclasses.dataclass
class Point:
    x: object
    y: int = 2
    def moved(self, by):
        return Point(self.x + by, self.y)
    def __post_init__(self):
        LOG.append(self.y)

@contextlib.contextmanager
def scaled(by):
    try:
        yield by * 2
    finally:
        LOG.append(('scaled', by))

class Deflt(dict):
    def __missing__(self, key):
        self[key] = len(self) + 1
        return self[key]

class Watched:
    def __init__(self):
        object.__setattr__(self, 'seen', [])
    def __setattr__(self, key, value):
        self.seen.append(key)
        object.__setattr__(self, key, value)

class Kind(type):
    @property
    def label(cls):
        return len(cls.__name__)

class Typed(metaclass=Kind):
    def __new__(cls, t):
        LOG.append('new')
        return super().__new__(cls)
    def __init__(self, t):
        self.t = t
    @functools.cached_property
    def twice(self):
        LOG.append('once')
        return self.t * 2

class Strange(int):
    def __add__(self, other):
        return Strange(int(self) * 10 + other) if isinstance(other, int) else int(self) + other

async def later(q):
    return q * 2

def steps(q):
    try:
        got = yield q
        yield q * (got or 2)
    except KeyError:
        LOG.append('caught')
        yield q - 1
    finally:
        LOG.append('end')

shelf = {}
stream = itertools.count(1)
"""
