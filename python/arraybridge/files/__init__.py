"""Files of arrays, such as the weights of a model: read into bundles (`load`), and written (`save`)."""
