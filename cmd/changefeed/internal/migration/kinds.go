package migration

import "github.com/millrace/changefeed/cmd/changefeed/internal/report"

// Kinds returns the kinds of the objects of this package.
func Kinds() []report.Kind {
	return []report.Kind{
		{Name: "copy", About: "How far a copy is, every 5 seconds and when its phase changes: copy.", Of: Progress{}},
		{Name: "copy_plan", About: "What a copy would do: copy --dry-run.", Of: Plan{}},
		{Name: "comparison", About: "The result of a comparison: compare.", Of: &Comparison{}},
	}
}
