"""Kinds of refusal, for those who must tell them apart (a service answers with other codes)."""


class InputError(ValueError):
    """What was given is wrong in itself."""


class UndoneError(RuntimeError):
    """Of several things that were to be done together, none was."""


class UnknownError(ValueError):
    """There is no such decision or arm."""


class ConflictError(ValueError):
    """What is asked contradicts what has happened: another reward, a full horizon."""
