"""The studio: choose, run, watch and cancel in a browser. Needs gradio (the `ui` extra); no other folder imports it."""
