package unit

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/feed"
)

// Rows as lines for programs, a type for each kind of row.

// Kinds describes the lines of changefeed leases.
func Kinds() []report.Kind {
	return []report.Kind{
		{Name: KindUnit, About: "A deployment unit, with the sums of all leases: leases.", Of: unitLine{}},
		{Name: KindLease, About: "A lease of a deployment unit: leases.", Of: leaseLine{}},
		{Name: KindInstance, About: "An instance of a deployment unit: leases.", Of: instanceLine{}},
		{Name: KindRequest, About: "A request of an operator that is not removed yet: leases.", Of: requestLine{}},
		{Name: KindHole, About: "A range of keys that no lease of a unit covers: leases.", Of: holeLine{}},
		{Name: KindDocument, About: "A document in a lease container that is none of these: leases.", Of: documentLine{}},
	}
}

// whose is the unit of a line.
type whose struct {
	Processor string `json:"processor" about:"name of the unit; / for a unit without a name"`
	Container string `json:"container" about:"the monitored container"`
}

// age is when a record was written.
type age struct {
	Written    time.Time `json:"written" about:"when the record was last written, by the clock of the store"`
	WrittenAgo float64   `json:"written_seconds_ago" about:"seconds since then"`
}

// headway is how a lease or a unit gets on.
type headway struct {
	Stuck     []string   `json:"stuck" about:"why nobody handles the changes: stopped, free, expired, paused, outage, failing, still, ahead, too-old, no-start or broken"`
	Rate      *float64   `json:"per_second" about:"changes handled a second since the round before, of leases watch, without overwritten versions"`
	Left      *float64   `json:"seconds_left" about:"until nothing is behind at the present pace; null if unknown, or if the lag does not fall"`
	Watermark *time.Time `json:"watermark" about:"every change that was committed before this time is handled"`
}

// unitLine has the sums of a unit. The members have other names than the members of a lease, so that a filter finds
// either.
type unitLine struct {
	whose
	Leases    int      `json:"leases" about:"number of leases"`
	Instances int      `json:"instances" about:"number of running instances"`
	Pending   *int64   `json:"pending" about:"changes after the positions of all leases; null if unknown for any lease"`
	Exact     bool     `json:"pending_exact" about:"pending is a count; else an estimate"`
	Shared    bool     `json:"pending_shared" about:"pending is an upper bound, because leases share partitions or overlap"`
	Oldest    *float64 `json:"oldest_seconds" about:"how long the oldest pending change has waited"`
	headway
	Unknown  *string `json:"unknown" about:"why pending is not known"`
	Requests int     `json:"requests" about:"sent to list and measure the leases; 0 for a store in a directory"`
	Charge   float64 `json:"request_units" about:"that these requests cost, as far as their answers say"`
}

type leaseLine struct {
	whose
	ID       string   `json:"id" about:"of the document"`
	Lease    string   `json:"lease" about:"the token, which is unique in the unit"`
	Range    *string  `json:"range" about:"of effective partition keys, min-max in hex"`
	Owner    *string  `json:"owner" about:"the instance that has the lease; null if the lease is free"`
	Epoch    *string  `json:"epoch" about:"of the owner's tenure; null for another kind of processor"`
	Position *string  `json:"position" about:"the continuation up to which changes are handled, also for tail --after"`
	Mode     *string  `json:"mode" about:"latest or all; null if the document says no mode that can be read"`
	State    string   `json:"state" about:"live, silent, expired, free, stopped, paused, broken, splitting or retired"`
	Attempts *int     `json:"attempts" about:"failures of the batch after the position; null if the document cannot be read"`
	Held     *int     `json:"held" about:"number of held partition keys; null if the document cannot be read"`
	HeldKeys []string `json:"held_keys" about:"held partition keys, as JSON"`
	SetAside *int     `json:"set_aside" about:"number of partition keys that are set aside because they fail; null if the document cannot be read"`
	Outage   *string  `json:"outage_since" about:"since when the owner sees an outage"`
	age
	Load   *int64   `json:"load" about:"changes of a minute, and changes behind, as measured by the owner; null without --share-by-load"`
	Lag    *int64   `json:"lag" about:"changes after the position"`
	Exact  bool     `json:"lag_exact" about:"lag is a count; else an estimate"`
	Shared bool     `json:"lag_shared" about:"lag is an upper bound, for a partition that leases share"`
	Waited *float64 `json:"lag_seconds" about:"how long the oldest of these changes has waited"`
	InHand *float64 `json:"in_hand_seconds" about:"how long a batch has been in the handler; null if not too long"`
	headway
	Notes []string `json:"notes" about:"remarks for the operator"`
}

type instanceLine struct {
	whose
	ID       string `json:"id" about:"of the document"`
	Instance string `json:"instance" about:"name of the instance"`
	Running  bool   `json:"running" about:"the instance has written lately, and has not stopped"`
	age
	Leases int `json:"leases" about:"how many leases the instance owns"`
	shared
	ran
	Notes []string `json:"notes" about:"remarks for the operator"`
}

// shared is how large an instance's part of a unit is.
type shared struct {
	Weight int      `json:"weight" about:"as --weight says; 1 by default"`
	ByLoad bool     `json:"shares_by_load" about:"the instance has --share-by-load, which works if all running instances have it"`
	Load   *int64   `json:"load" about:"of the instance's leases: changes of a minute, and changes behind; null without --share-by-load, or if unknown for any lease"`
	Share  *float64 `json:"share" about:"of the leases, or of their load if all share by load, from 0 to 1; null if the instance has ended"`
	Due    *float64 `json:"share_due" about:"the share that the weight of the instance gives; null if the instance has ended"`
}

// ran is the variant of an instance.
type ran struct {
	Variant *string `json:"variant" about:"hash of the next three; null if the instance does not tell"`
	Handler *string `json:"handler" about:"name and version of the handler"`
	Program *string `json:"program" about:"module and version of the program"`
	Options *string `json:"options" about:"options that decide the fate of a change"`
}

type requestLine struct {
	whose
	ID     string          `json:"id" about:"of the document"`
	Action *string         `json:"action" about:"retry or release of a key, pause or reset of leases; null if unreadable"`
	Key    json.RawMessage `json:"key" about:"the partition key; null if the request is about leases"`
	Range  *string         `json:"range" about:"of the leases, min-max in hex; null if the request is about a key"`
	Letter *string         `json:"letter" about:"ID of the dead letter; null for a release"`
	Asked  *time.Time      `json:"asked" about:"when, by the clock of the caller"`
	State  string          `json:"state" about:"asked, served, withdrawn or expired"`
	age
	Notes []string `json:"notes" about:"remarks for the operator"`
}

type holeLine struct {
	whose
	Range string   `json:"range" about:"of effective partition keys, min-max in hex"`
	Notes []string `json:"notes" about:"remarks for the operator"`
}

type documentLine struct {
	Processor *string  `json:"processor" about:"name of the unit; null if the document belongs to none"`
	Container *string  `json:"container" about:"the monitored container"`
	ID        string   `json:"id" about:"of the document"`
	Owner     *string  `json:"owner" about:"if the document is a lease"`
	Lease     *string  `json:"lease" about:"the token, if the document is a lease"`
	Notes     []string `json:"notes" about:"the nature of the document"`
}

// Deleted is the result of the deletion of a unit.
type Deleted struct {
	Processor string `json:"processor" about:"name of the unit"`
	Container string `json:"container" about:"the monitored container"`
	Leases    int    `json:"deleted" about:"number of leases"`
	DryRun    bool   `json:"dry_run" about:"true if nothing was deleted, but would be"`
}

// ReportedAs implements [report.Value].
func (unitLine) ReportedAs() string { return KindUnit }

// ReportedAs implements [report.Value].
func (leaseLine) ReportedAs() string { return KindLease }

// ReportedAs implements [report.Value].
func (instanceLine) ReportedAs() string { return KindInstance }

// ReportedAs implements [report.Value].
func (requestLine) ReportedAs() string { return KindRequest }

// ReportedAs implements [report.Value].
func (holeLine) ReportedAs() string { return KindHole }

// ReportedAs implements [report.Value].
func (documentLine) ReportedAs() string { return KindDocument }

// ReportedAs implements [report.Value].
func (Deleted) ReportedAs() string { return "deleted_unit" }

// WriteRows writes the rows of all units for programs.
func WriteRows(rows *report.Rows, units []Unit) error {
	for i := range units {
		u := &units[i]
		if u.Processor != "" {
			if err := rows.Add(u.line()); err != nil {
				return err
			}
		}
		for _, r := range u.Rows {
			r.Notes = slices.Clone(r.Notes)
			for i, note := range r.Notes {
				r.Notes[i] = u.Commands.Complete(note, r.HeldKeys...)
			}
			if err := rows.Add(r.line()); err != nil {
				return err
			}
		}
	}
	return rows.Flush()
}

// line returns the line of a unit.
func (u *Unit) line() report.Value {
	sum, est := u.Listing().Sum(), u.Estimate
	total := est.Total
	line := unitLine{
		whose: whose{u.Processor, u.Container}, Leases: sum.Leases, Instances: sum.Instances,
		headway:  headwayOf(total.Stuck, total.Pace, total.Watermark),
		Requests: est.Cost.Requests, Charge: est.Cost.Charge,
	}
	if total.Known() {
		line.Pending, line.Exact, line.Shared = &total.Pending, total.Exact, total.Shared
		if age, known := total.Age(est.At); known {
			line.Oldest = new(age.Seconds())
		}
	} else {
		line.Unknown = known(total.Err.Error())
	}
	return line
}

// headwayOf returns how a lease or a unit gets on.
func headwayOf(stuck []feed.Stuck, pace *changefeed.Pace, watermark time.Time) headway {
	h := headway{Stuck: wordsOf(stuck), Watermark: knownTime(watermark)}
	if pace != nil {
		h.Rate = &pace.PerSecond
		if pace.CatchUp != changefeed.Never {
			h.Left = new(pace.CatchUp.Seconds())
		}
	}
	return h
}

// line returns the line of a row.
func (r Row) line() report.Value {
	unit := whose{r.Processor, r.Container}
	written := age{r.record.Updated.UTC(), r.Silent}
	notes := append([]string{}, r.Notes...)
	switch r.Kind {
	case KindLease:
		return leaseLine{
			whose: unit, ID: r.ID, Lease: r.Lease, Range: known(r.Range), Owner: known(r.Owner), Epoch: known(r.Epoch),
			Position: known(r.Position), Mode: r.mode(), State: r.State, Attempts: r.count(r.Attempts),
			Held: r.count(r.Held), HeldKeys: append([]string{}, r.HeldKeys...), SetAside: r.count(r.SetAside),
			Outage: known(r.Outage),
			age:    written, Load: r.Load, Lag: r.Lag, Exact: r.Exact, Shared: r.Shared, Waited: r.Waited,
			InHand:  r.InHand,
			headway: headwayOf(r.Stuck, r.Pace, r.Watermark), Notes: notes,
		}
	case KindInstance:
		line := instanceLine{
			unit, r.ID, r.Owner, r.Presence == admin.Running, written, r.Leases, r.Sharing, ran{}, notes,
		}
		if v := r.Runs; v != nil {
			line.ran = ran{new(v.Hash()), known(v.Handler), known(v.Program), known(v.Options)}
		}
		return line
	case KindRequest:
		q := r.Request
		line := requestLine{
			unit, r.ID, known(q.Action), q.Key, known(q.Range), known(q.Letter), nil, r.State, written, notes,
		}
		if !q.Asked.IsZero() {
			line.Asked = &q.Asked
		}
		return line
	case KindHole:
		return holeLine{unit, r.Range, notes}
	}
	return documentLine{known(r.Processor), known(r.Container), r.ID, known(r.Owner), known(r.Lease), notes}
}

// known returns a text, or nil for an empty text.
func known(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// isUnread reports whether a member of the document cannot be read. Then another member that is zero may be missing.
func (r Row) isUnread() bool { return errors.Is(r.record.Err, feed.ErrBadLease) }

// count returns a number that is read from the document; nil if unknown.
func (r Row) count(n int) *int {
	if n == 0 && r.isUnread() {
		return nil
	}
	return &n
}

// mode returns the word of the flag --mode for the mode of a lease; nil if unknown.
func (r Row) mode() *string {
	switch {
	case r.record.Mode == feed.AllVersionsAndDeletes:
		return new("all")
	case r.isUnread():
		return nil
	}
	return new("latest")
}
