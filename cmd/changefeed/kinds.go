package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/bench"
	"github.com/millrace/changefeed/cmd/changefeed/internal/demo"
	"github.com/millrace/changefeed/cmd/changefeed/internal/doctor"
	"github.com/millrace/changefeed/cmd/changefeed/internal/functions"
	"github.com/millrace/changefeed/cmd/changefeed/internal/letters"
	"github.com/millrace/changefeed/cmd/changefeed/internal/load"
	"github.com/millrace/changefeed/cmd/changefeed/internal/migration"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unload"
	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
)

// change describes the lines of tail, which package changeline writes.
type change struct {
	LSN         int64           `json:"lsn" about:"of the commit; changes with the same lsn were committed together"`
	Time        time.Time       `json:"time" about:"of the commit"`
	Op          string          `json:"op" about:"upsert; for all versions create, replace or delete"`
	ID          string          `json:"id" about:"of the document"`
	Key         json.RawMessage `json:"key" about:"the partition key, an array"`
	Range       string          `json:"range" about:"that the change was read from, min-max in hex"`
	Expired     bool            `json:"expired,omitempty" about:"the time to live has deleted the document"`
	Document    json.RawMessage `json:"document,omitempty" about:"left out for a delete"`
	Previous    json.RawMessage `json:"previous,omitempty" about:"the version before, if the container keeps that version"`
	PreviousLSN int64           `json:"previous_lsn,omitempty" about:"of the version before"`
	Next        string          `json:"next,omitempty" about:"position after the change, at the end of a page"`
}

// ReportedAs implements [report.Value].
func (change) ReportedAs() string { return "change" }

// allKinds returns the kinds of all objects that commands write with -o json.
func allKinds() []report.Kind {
	return slices.Concat(
		[]report.Kind{
			{Name: "backup", About: "A backup: backup.", Of: backedUp{}},
			{Name: "change", About: "A change and the metadata: tail.", Of: change{}},
			{Name: "check", About: "The result of a check: check.", Of: checked{}},
			{Name: "import", About: "The result of an import: import.", Of: load.Result{}},
			{Name: "server", About: "Where and how clients reach the server: serve.", Of: web.Endpoints{}},
			{Name: "relay", About: "The counts of published and parked events: relay.", Of: relayed{}},
			{Name: "demo", About: "The findings of the demo: demo.", Of: demo.Findings{}},
			{Name: "build", About: "The version and the origin of the binary: version.", Of: build{}},
			{Name: "dropped_letters", About: "How many letters were removed: dlq drop.", Of: dropped{}},
			{Name: "deleted_unit", About: "The leases of a unit that were deleted: leases delete.", Of: unit.Deleted{}},
			{Name: "withdrawn_requests", About: "How many requests were withdrawn: dlq withdraw.", Of: withdrawn{}},
			contextKind, removedContextKind, partitionKind, skipKind, stepKind, unit.ActionKind, unit.RemovalKind,
			unit.ExplanationKind,
			letters.ListKind, letters.WholeKind, letters.AnswerKind,
			bench.FigureKind, exportKind, unload.SalvageKind, programKind, hostedKind, functions.PlanKind,
		},
		migration.Kinds(), dataKinds(), unit.Kinds(), doctor.Kinds(), report.Kinds(),
	)
}

// jsonTopic is changefeed help json.
func jsonTopic() *cobra.Command {
	var list strings.Builder
	kinds := slices.SortedFunc(slices.Values(allKinds()),
		func(a, b report.Kind) int { return strings.Compare(a.Name, b.Name) })
	for _, k := range kinds {
		fmt.Fprintf(&list, "  %-18s  %s\n", k.Name, k.About)
	}
	return &cobra.Command{
		Use:   "json",
		Short: "The objects of -o json",
		Long: `With -o json a command writes an object a line. Each object begins with the kind and with the version of
the schema:

  {"kind":"build","schema":` + fmt.Sprint(report.Schema) + `, …}

Times are RFC 3339, durations are seconds, and an unknown value is null. A later version may add members. If a member is
removed or changes meaning, the number of the schema grows.

Results go to standard output. An error is an object of the kind error on standard error, with the name of the exit code
(changefeed help exit-codes), a hint, and the reason as a word. Either may be null.

Your documents have no kind: those of export, get and query, and those of tail without -o json. The documents of export
and tail are JSON in any form of the output. The log of run, relay, functions and host on standard error has no kind
either: its objects have time, level and msg.

The kinds are

` + list.String(),
	}
}
