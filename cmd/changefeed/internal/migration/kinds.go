package migration

import "github.com/millrace/changefeed/cmd/changefeed/internal/report"

// Kinds returns the kinds of the objects of this package.
func Kinds() []report.Kind {
	return []report.Kind{
		{Name: "copy", About: "The progress of a copy, every 5 seconds and when the phase changes: copy.", Of: Progress{}},
		{Name: "copy_plan", About: "The plan of a copy: copy --dry-run.", Of: Plan{}},
		{Name: "comparison", About: "The result of a comparison: compare.", Of: &Comparison{}},
	}
}
