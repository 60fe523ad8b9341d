package unit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
	"github.com/millrace/changefeed/internal/sentence"
)

// Documents of a lease container that belong to no unit of this store: records of a unit whose container is elsewhere
// or was deleted, and documents that are none of ours.

// WarnStrays is the word for records of units whose containers are not here. Nobody watches such a unit from here.
const WarnStrays admin.Word = "strays"

// A Stray says whose record a document of no unit is. The zero value is a document that is no record.
type Stray struct {
	Prefix  string // of the ids of the unit
	Deleted string // name of the unit, if the container does not exist any more
}

// stray describes a document that belongs to no unit of this store.
func stray(doc feed.Change, suffixes []suffix) Row {
	r := Row{Kind: KindDocument, ID: doc.ID}
	prefix, kind, token := strayRecord(doc.ID)
	if prefix == "" {
		r.note("no lease of a container in this store")
		return r
	}
	r.Stray.Prefix = prefix
	what := "a record"
	if kind == feed.KindLease {
		what = "a lease"
		r.Owner, r.Lease = leasedoc.Unmarshal(prefix, doc.Body).Owner, token
	}
	elsewhere := func(s suffix) bool {
		_, rids, ok := strings.Cut(s.text, "_") // after the host
		return ok && strings.HasSuffix(prefix, "_"+rids)
	}
	switch {
	case slices.ContainsFunc(suffixes, elsewhere):
		r.note("%s of a unit that has its containers from another address, whose host is in the id: look from there", what)
	case r.Stray.isOfDeleted(suffixes):
		r.note("%s of unit %s on a container that does not exist any more: changefeed leases gc --name %s removes it",
			what, r.Stray.Deleted, terminal.ShellWord(r.Stray.Deleted))
	default:
		r.note("%s, but of a container that is not in this store", what)
	}
	return r
}

// strayRecord reads the id of a record of any unit. The prefix is empty if the id has none: that of a lease may have
// any form, because Java's has names, and that of another record ends with resource ids.
func strayRecord(id string) (prefix string, kind feed.Kind, token string) {
	if prefix, token, ok := strings.Cut(id, ".."); ok {
		return prefix, feed.KindLease, token
	}
	for i, c := range id {
		if c != '.' { // a host has dots, too
			continue
		}
		database, rid, _ := cutLast(id[:i], "_")
		_, of, _ := cutLast(database, "_")
		if kind, token, ok := leasedoc.KindOf(id[:i], id); ok && isContainerOf(rid, of) {
			return id[:i], kind, token
		}
	}
	return "", "", ""
}

// isOfDeleted reports whether the unit read a container of a database that is known here, which does not exist any
// more, and sets the name of the unit.
func (s *Stray) isOfDeleted(suffixes []suffix) bool {
	database, rid, _ := cutLast(s.Prefix, "_")
	for _, known := range suffixes {
		of, _, _ := cutLast(known.text, "_")
		_, databaseRID, _ := cutLast(of, "_")
		name, ok := strings.CutSuffix(database, of)
		if ok && isContainerOf(rid, databaseRID) {
			s.Deleted = cmp.Or(name, Unnamed)
			return true
		}
	}
	return false
}

// strayFindings returns a finding for each unit whose records are among the documents of no unit.
func (u *Unit) strayFindings() (found []admin.Finding) {
	var all []Stray
	count := map[Stray]int64{}
	for _, r := range u.Rows {
		if r.Stray.Prefix == "" {
			continue
		}
		if count[r.Stray]++; count[r.Stray] == 1 {
			all = append(all, r.Stray)
		}
	}
	for _, s := range all {
		text := sentence.Count(count[s], "record") + " of a unit whose container is not here"
		if s.Deleted != "" {
			text = fmt.Sprintf("%s of unit %s, whose container does not exist any more",
				sentence.Count(count[s], "record"), s.Deleted)
		}
		found = append(found, admin.Finding{Word: WarnStrays, Grade: admin.GradeWarning, ID: s.Prefix, Text: text})
	}
	return found
}
