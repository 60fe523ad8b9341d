package unit

import (
	"context"
	"fmt"
	"io"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// Records of a unit that nobody needs, as output, and their removal.

// Removal is a record that leases gc removes, for programs.
type Removal struct {
	Record string  `json:"record" about:"kind of the record: lease, host or request; mark for that of a pause"`
	ID     string  `json:"id" about:"of the document"`
	Token  *string `json:"token" about:"the name of the record among others of the kind"`
	Why    string  `json:"why" about:"why nobody needs the record"`
	Done   bool    `json:"done" about:"false after a dry run, and for records that stay"`
	Left   *string `json:"left" about:"why the record stays; null if it was removed, or would be"`
}

// ReportedAs implements [report.Value].
func (Removal) ReportedAs() string { return "removal" }

// recordMark is the word for the mark of a pause, which is removed from a lease that stays.
const recordMark = "mark"

// RemovalKind describes the lines of changefeed leases gc.
var RemovalKind = report.Kind{
	Name: "removal", About: "A record among the leases that nobody needs: leases gc.", Of: Removal{},
}

// Garbage is all surplus records of a unit's name.
type Garbage struct {
	Leases  *place.Container
	Unit    *admin.Unit // nil if only containers that do not exist any more have had such a unit
	Surplus []admin.Surplus
	Orphans []Orphan
}

// List returns the surplus records, for programs.
func (g Garbage) List() (all []Removal) {
	for _, s := range g.Surplus {
		all = append(all, removalOf(s))
	}
	for _, orphan := range g.Orphans {
		all = append(all, Removal{
			Record: string(orphan.Kind), ID: orphan.ID, Token: known(orphan.Token), Why: orphan.Why,
			Left: known(orphan.Left),
		})
	}
	return all
}

// removalOf returns the surplus of a unit for programs.
func removalOf(s admin.Surplus) Removal {
	r := Removal{
		Record: string(s.Kind), ID: s.ID, Token: known(s.Token), Why: s.Why, Done: s.Done, Left: known(s.Left),
	}
	if s.Mark {
		r.Record = recordMark
	}
	return r
}

// Remove removes the found records, and returns the results, also with an error. Records not tried because of the error
// stay.
func (g Garbage) Remove(ctx context.Context) (all []Removal, err error) {
	all = g.List()
	defer func() {
		for i, r := range all {
			if err != nil && !r.Done && r.Left == nil {
				all[i].Left = known("the clean-up has failed before")
			}
		}
	}()
	if g.Unit != nil {
		done, err := g.Unit.CleanUp(ctx, g.Surplus)
		for i, s := range done {
			all[i] = removalOf(s)
		}
		if err != nil {
			return all, err
		}
	}
	for i, orphan := range g.Orphans {
		r := &all[len(g.Surplus)+i]
		left, err := orphan.Remove(ctx, g.Leases)
		r.Done, r.Left = left == "", known(left)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// WriteRemovals reports removed records, or records to be removed. verb is for records that did not stay.
func WriteRemovals(r *report.Report, verb string, all []Removal) error {
	if !r.ForPeople() {
		rows := r.Rows()
		for _, one := range all {
			if err := rows.Add(one); err != nil {
				return err
			}
		}
		return rows.Flush()
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(r.Out, "nothing to remove")
		return err
	}
	return WriteRemovalLines(r.Out, verb, all)
}

// WriteRemovalLines writes a line for each removal. verb is for records that did not stay.
func WriteRemovalLines(w io.Writer, verb string, all []Removal) error {
	for _, r := range all {
		what, why := verb, r.Why
		if r.Left != nil {
			what, why = "left", *r.Left
		}
		name := r.ID
		if r.Token != nil && (r.Record == string(feed.KindLease) || r.Record == recordMark) {
			name = *r.Token + " (" + r.ID + ")"
		}
		if _, err := fmt.Fprintf(w, "%s %s %s: %s\n", what, r.Record, terminal.OneLine(name),
			terminal.OneLine(why)); err != nil {
			return err
		}
	}
	return nil
}
