package engine

const (
	// A table that is open saves an open and a read of its index for each lookup. The
	// most is that of the library's default; the fewest still let a compaction of
	// several tables run.
	mostTables    = 990 // files of sorted data that are kept open
	fewestTables  = 16
	otherFiles    = 24 // logs, manifest, directories, and those that are being written
	tablesOfShard = 16
)

// MaxDescriptors is how many file descriptors an engine uses at most.
func MaxDescriptors() int { return openTables() + otherFiles }

// openTables returns how many tables are kept open.
func openTables() int { return tablesWithin(descriptorLimit()) }

// tablesWithin returns how many tables may be open in a process with a limit of descriptors; 0 is no limit. Half of the limit is
// left to the rest of the process.
func tablesWithin(limit int) int {
	if limit <= 0 {
		return mostTables
	}
	return max(min(limit/2-otherFiles, mostTables), fewestTables)
}
