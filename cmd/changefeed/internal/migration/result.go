package migration

import (
	"fmt"
	"io"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// A Comparison is the result of a comparison.
type Comparison struct {
	Source      string       `json:"source" about:"address"`
	Target      string       `json:"target" about:"address"`
	SourceCount int64        `json:"source_documents" about:"documents that the items of the source become"`
	TargetCount int64        `json:"target_documents" about:"documents of the target"`
	Missing     int64        `json:"missing" about:"documents that the target lacks"`
	Surplus     int64        `json:"surplus" about:"documents of the target that no item of the source has"`
	Different   int64        `json:"different" about:"documents with another content"`
	Conflicts   int64        `json:"conflicts" about:"places in the target that several items of the source have"`
	Uncopied    int64        `json:"uncopied" about:"items that can never be copied"`
	Repaired    int64        `json:"repaired" about:"documents that --repair has written or deleted"`
	Ranges      []RangeSums  `json:"ranges" about:"sums of the ranges of the target"`
	Differences []Difference `json:"differences" about:"the first differences, as many as --most"`
}

// ReportedAs implements [report.Value].
func (*Comparison) ReportedAs() string { return "comparison" }

// RangeSums are the sums of a range of the target.
type RangeSums struct {
	Range       string `json:"range" about:"min-max in hex"`
	SourceCount int64  `json:"source_documents" about:"documents that the items of the source become"`
	TargetCount int64  `json:"target_documents" about:"documents of the target"`
	SourceSum   string `json:"source_sum" about:"checksum, which does not depend on the order"`
	TargetSum   string `json:"target_sum" about:"checksum, which does not depend on the order"`
	Same        bool   `json:"same" about:"counts and checksums agree"`

	source, target uint64
}

// A Difference names a document of the target, and the item of the source.
type Difference struct {
	What    string `json:"what" about:"missing, surplus, different, conflict or uncopied"`
	Key     string `json:"key" about:"partition key in the target; empty if unknown"`
	ID      string `json:"id" about:"id in the target; empty if unknown"`
	ItemKey string `json:"source_key" about:"partition key in the source; empty if there is no item"`
	Item    string `json:"source_id" about:"id in the source; empty if there is no item"`
	Why     string `json:"why" about:"the reason of a conflict, or why an item can never be copied; otherwise empty"`
}

// The kinds of differences.
const (
	missing     = "missing"
	surplus     = "surplus"
	different   = "different"
	conflicting = "conflict"
	uncopied    = "uncopied"
)

// note counts a difference, and lists it if there are not too many.
func (w *comparison) note(d Difference) {
	r := &w.result
	switch d.What {
	case missing:
		r.Missing++
	case surplus:
		r.Surplus++
	case different:
		r.Different++
	case conflicting:
		r.Conflicts++
	case uncopied:
		r.Uncopied++
	}
	if len(r.Differences) < w.Most {
		r.Differences = append(r.Differences, d)
	}
}

// differing returns the number of differences.
func (c *Comparison) differing() int64 {
	return c.Missing + c.Surplus + c.Different + c.Conflicts + c.Uncopied
}

// write writes the result for people.
func (c *Comparison) write(w io.Writer) error {
	rows := [][]string{{"RANGE", "SOURCE", "TARGET", "SUM OF SOURCE", "SUM OF TARGET", ""}}
	for _, r := range c.Ranges {
		verdict := "same"
		if !r.Same {
			verdict = "different"
		}
		rows = append(rows, []string{
			r.Range, terminal.Number(r.SourceCount), terminal.Number(r.TargetCount), r.SourceSum, r.TargetSum, verdict,
		})
	}
	var b strings.Builder
	b.WriteString(terminal.Table(rows, terminal.Of(w).Room()))
	for _, d := range c.Differences {
		fmt.Fprintln(&b, d.line())
	}
	if more := c.differing() - int64(len(c.Differences)); more > 0 {
		fmt.Fprintf(&b, "and %s more\n", terminal.Number(more))
	}
	fmt.Fprintf(&b, "%s of the source, %s of the target", terminal.Count(c.SourceCount, "document"),
		terminal.Number(c.TargetCount))
	if c.Repaired > 0 {
		fmt.Fprintf(&b, "; %s repaired", terminal.Number(c.Repaired))
	}
	if c.differing() == 0 {
		b.WriteString(": no difference\n")
	} else {
		fmt.Fprintf(&b, ": %d missing, %d surplus, %d different, %d in conflict, %d never copied\n", c.Missing, c.Surplus,
			c.Different, c.Conflicts, c.Uncopied)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line is a difference for people.
func (d Difference) line() string {
	text := fmt.Sprintf("%-9s ", d.What)
	if d.ID != "" {
		text += fmt.Sprintf("id %q, key %s", terminal.OneLine(d.ID), terminal.OneLine(d.Key))
	} else {
		text += fmt.Sprintf("source id %q, source key %s", terminal.OneLine(d.Item), terminal.OneLine(d.ItemKey))
	}
	if d.Why != "" {
		text += ": " + terminal.OneLine(d.Why)
	}
	return text
}
