"""The autograd stage, under the names programs import it from."""
