package docstore

import "github.com/millrace/changefeed/docstore/internal/engine"

// Descriptors returns how many file descriptors a store uses at most: about 1,000 for a large store, and never more
// than half of the process's limit. If you write a server, keep its connections below the rest, because a store that
// cannot open a file stops all writers.
func Descriptors() int { return engine.MaxDescriptors() }
