package unit

import (
	"fmt"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// A MeantChange says which failing change a command line means; the zero value means a whole batch.
type MeantChange struct {
	ID  string            // of the document; empty is any
	Key feed.PartitionKey // empty is any
	LSN int64             // zero is any
}

// PickFailing returns the failing changes of a unit that a command line means: a batch, or a single change.
func PickFailing(all []admin.Failing, of string, o MeantChange) (admin.Failing, error) {
	isOne := o != MeantChange{}
	var found []admin.Failing
	for _, f := range all {
		if !isOne {
			if len(found) == 0 || found[len(found)-1].Lease.Token != f.Lease.Token { // the oldest batch of each lease
				found = append(found, f)
			}
			continue
		}
		for _, c := range f.Changes {
			if (o.ID == "" || c.ID == o.ID) && (o.Key == "" || c.Key == o.Key) &&
				(o.LSN == 0 || c.LSN == o.LSN) {
				one := f
				one.Changes, one.More = []admin.FailedChange{c}, false
				found = append(found, one)
			}
		}
	}
	switch {
	case len(all) == 0:
		return admin.Failing{}, usage.Missing{Err: fmt.Errorf("no change of %s is failing: there is nothing to skip", of)}
	case len(found) == 0:
		return admin.Failing{}, usage.Missing{Err: fmt.Errorf("no failing change fits --change, --key and --lsn; "+
			"these fail: %s", namesOfFailed(all))}
	case len(found) > 1 && isOne:
		return admin.Failing{}, usage.Error{Err: fmt.Errorf("%d failing changes are as the flags say: want one, so add "+
			"--change, --key, --lsn or --lease: %s", len(found), namesOfFailed(found))}
	case len(found) > 1:
		return admin.Failing{}, usage.Error{Err: fmt.Errorf("%d leases fail: want --lease with one of them, such as %s",
			len(found), found[0].Lease.Range)}
	}
	return found[0], nil
}

// mostNamed is how many changes an error names.
const mostNamed = 5

// namesOfFailed names the first failing changes.
func namesOfFailed(all []admin.Failing) (text string) {
	n := 0
	for _, f := range all {
		for _, c := range f.Changes {
			if n++; n > mostNamed {
				return text + "; …"
			}
			if n > 1 {
				text += "; "
			}
			text += NameOfFailed(c)
		}
	}
	return text
}

// NameOfFailed names a change for people.
func NameOfFailed(c admin.FailedChange) string {
	return fmt.Sprintf("change %q of key %s, LSN %d", terminal.OneLine(c.ID), terminal.OneLine(string(c.Key)), c.LSN)
}
