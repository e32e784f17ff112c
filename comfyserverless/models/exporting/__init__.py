"""Give the tensors of models back as files hold them."""
