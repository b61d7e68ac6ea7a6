"""Cuts a program down while a test still says yes: statements go, blocks give way to their bodies, expressions to their parts."""
import ast
import copy
import re


def bodies(tree):
    """Every list of statements in the tree."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body
        if isinstance(node, ast.Try):
            yield node.handlers
        if isinstance(node, ast.Match):
            yield node.cases


def text_of(tree):
    tree = copy.deepcopy(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.If, ast.With, ast.ExceptHandler, ast.match_case)) and not node.body:
            node.body.append(ast.Pass())
        if isinstance(node, ast.Try):
            if not node.body:
                node.body.append(ast.Pass())
            if not node.handlers and not node.finalbody:
                node.finalbody.append(ast.Pass())
            if not node.handlers:
                node.orelse = []
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def parts(node):
    """Simpler expressions that may stand for this one."""
    if isinstance(node, ast.Call):
        out = [node.func.value] if isinstance(node.func, ast.Attribute) and not (isinstance(node.func.value, ast.Name) and node.func.value.id in ("torch", "functools", "collections", "operator")) else []
        out += list(node.args)
        for i in range(len(node.args)):
            less = copy.copy(node)
            less.args = node.args[:i] + node.args[i + 1:]
            out.append(less)
        for i in range(len(node.keywords)):
            less = copy.copy(node)
            less.keywords = node.keywords[:i] + node.keywords[i + 1:]
            out.append(less)
        return out
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Store):
        return [node.value]
    if isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Load):
        out = list(node.elts) if len(node.elts) == 1 else []
        for i in range(len(node.elts)):
            less = copy.copy(node)
            less.elts = node.elts[:i] + node.elts[i + 1:]
            out.append(less if less.elts or isinstance(node, ast.List) else ast.Constant(None))
        return list(node.elts) + out
    if isinstance(node, ast.Dict):
        out = list(node.values)
        for i in range(len(node.keys)):
            less = copy.copy(node)
            less.keys, less.values = node.keys[:i] + node.keys[i + 1:], node.values[:i] + node.values[i + 1:]
            out.append(less)
        return out
    if isinstance(node, ast.Compare):
        return [ast.Constant(True), ast.Constant(False)]
    if isinstance(node, ast.Lambda):
        return []
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return [node.generators[0].iter]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and not isinstance(node.value, ast.Name):
        return [node.value]
    return []


class Put(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return self.new if node is self.old else self.generic_visit(node)


def reduce(text, holds, limit=1200):
    """The smallest program found for which holds(text) is true; at most `limit` trials."""
    tried, best, left = set(), text, [limit]

    def ok(candidate):
        nonlocal best
        if candidate in tried or left[0] <= 0:
            return False
        tried.add(candidate)
        try:
            compile(candidate, "p", "exec")
        except (SyntaxError, ValueError):
            return False
        left[0] -= 1
        if holds(candidate):
            best = candidate
            return True
        return False

    plain = text_of(ast.parse(text))
    if not ok(plain):
        return text
    moved = True
    while moved and left[0] > 0:
        moved = False
        # statements, in shrinking pieces
        which = 0
        while True:
            tree = ast.parse(best)
            lists = list(bodies(tree))
            if which >= len(lists):
                break
            size = len(lists[which])
            step = max(1, size // 2)
            changed = False
            while step:
                at = len(lists[which]) - step
                while at >= -step + 1:
                    lo = max(at, 0)
                    body = lists[which]
                    saved = body[:]
                    del body[lo:lo + step]
                    if len(body) < len(saved) and ok(text_of(tree)):
                        moved = changed = True
                    else:
                        body[:] = saved
                    at -= step
                step //= 2
            which += 1
        # blocks give way to their bodies
        again = True
        while again and left[0] > 0:
            again = False
            tree = ast.parse(best)
            for body in list(bodies(tree)):
                for i, s in enumerate(body):
                    for field in ("body", "orelse", "finalbody"):
                        inner = getattr(s, field, None)
                        if isinstance(s, (ast.If, ast.For, ast.While, ast.With, ast.Try)) and isinstance(inner, list) and inner:
                            saved = body[:]
                            body[i:i + 1] = inner
                            if ok(text_of(tree)):
                                again = moved = True
                                break
                            body[:] = saved
                    if again:
                        break
                if again:
                    break
        # expressions give way to their parts; definitions lose arguments, decorators and bases
        again = True
        while again and left[0] > 0:
            again = False
            tree = ast.parse(best)
            for node in list(ast.walk(tree)):
                for part in parts(node):
                    memo = {}
                    clone = copy.deepcopy(tree, memo)
                    target = memo.get(id(node))
                    if target is None:
                        continue
                    other = Put(target, copy.deepcopy(part)).visit(clone)
                    candidate = text_of(other)
                    if len(candidate) < len(best) and ok(candidate):
                        again = moved = True
                        break
                if again:
                    break
                for field in ("decorator_list", "bases"):
                    if getattr(node, field, None):
                        saved = getattr(node, field)
                        setattr(node, field, [])
                        if ok(text_of(tree)):
                            again = moved = True
                            break
                        setattr(node, field, saved)
                if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
                    for small in (1, 2):
                        if abs(node.value) > small:
                            saved, node.value = node.value, small
                            if ok(text_of(tree)):
                                moved = True
                                break
                            node.value = saved
                if again:
                    break
        # arguments that no call needs: from the definition and every call of f
        for name in re.findall(r"\w+", (re.search(r"^def f\((.*)\):", best, re.M) or [None, ""])[1]):
            tree = ast.parse(best)
            place = None
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and node.name == "f":
                    names = [a.arg for a in node.args.args]
                    if name in names:
                        place = names.index(name)
                        del node.args.args[place]
            if place is None:
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "call" and len(node.args) > place + 1:
                    del node.args[place + 1]
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "show":
                    node.keywords = [k for k in node.keywords if k.arg != name]
            if ok(text_of(tree)):
                moved = True
    return best
