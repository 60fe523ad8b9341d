package docstore

const (
	// A table that is open saves an open and a read of its index for each lookup. The
	// most is that of the engine's default; the fewest still let a compaction of
	// several tables run.
	mostTables    = 990 // files of sorted data that are kept open
	fewestTables  = 16
	otherFiles    = 24 // logs, manifest, directories, and those that are being written
	tablesOfShard = 16
)

// Descriptors returns how many file descriptors a store uses at most: about 1,000 for a
// large store, and never more than half of the process's limit. A server keeps its
// connections below the rest, because a store that cannot open a file stops all
// writers.
func Descriptors() int { return openTables() + otherFiles }

// openTables returns how many tables are kept open.
func openTables() int {
	limit := descriptorLimit()
	if limit <= 0 {
		return mostTables
	}
	return max(min(limit/2-otherFiles, mostTables), fewestTables)
}
