"""Tell models apart by their tensors, as packs do that look into files themselves."""
