package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Details that the page requests only when somebody looks at them: a lease in sentences, and dead letters.

// detailTimeout is how long such a question may take.
const detailTimeout = 10 * time.Second

// mostLetters is how many dead letters an answer has, and mostLetter how many bytes of a document.
const (
	mostLetters = 100
	mostLetter  = 64 << 10
)

// Explanation is a lease in sentences: see [admin.Explanation].
type Explanation struct {
	Lease   string   `json:"lease"`
	State   string   `json:"state"`
	Facts   []string `json:"facts"`
	Next    []string `json:"next"`
	History []Action `json:"history"` // oldest first
}

// Action is an operator's action on a lease: see [admin.Entry].
type Action struct {
	At     time.Time `json:"at"`
	Action string    `json:"action"`
	By     string    `json:"by"`     // empty if unknown
	Reason string    `json:"reason"` // empty if nobody said
	Done   int       `json:"done"`
	Count  int       `json:"count"`
	Failed string    `json:"failed"` // why the action was not carried out as a whole; empty after success
}

// Letter is a dead letter: see [feed.DeadLetter].
type Letter struct {
	ID          string          `json:"id"`
	Key         json.RawMessage `json:"key"` // the partition key
	Item        string          `json:"item"`
	LSN         int64           `json:"lsn"`
	Disposition string          `json:"disposition"`
	Cause       string          `json:"cause"`
	Attempts    int             `json:"attempts"`
	Lease       string          `json:"lease"`
	Instance    string          `json:"instance"`
	Parked      time.Time       `json:"parked"`
	Document    string          `json:"document"` // as text, because the format is unknown
	Cut         bool            `json:"cut"`      // Document is only the beginning
}

// Letters are dead letters of a unit.
type Letters struct {
	Letters []Letter `json:"letters"` // null if this process cannot read them
	At      string   `json:"at"`      // where they are; empty if unknown
	More    bool     `json:"more"`    // there are more than these
}

// serveExplain answers GET /explain.
func (d *Dashboard) serveExplain(w http.ResponseWriter, r *http.Request) {
	s, err := d.unitAsked(r)
	if err != nil {
		refuse(w, http.StatusNotFound, err.Error())
		return
	}
	if r.FormValue("lease") == "" {
		refuse(w, http.StatusBadRequest, "lease is missing: want the token of a lease")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), detailTimeout)
	defer cancel()
	all, err := s.admin.Explain(ctx, r.FormValue("lease"))
	switch {
	case errors.Is(err, feed.ErrNotFound) || err == nil && (len(all) != 1 || all[0].Lease == nil):
		refuse(w, http.StatusNotFound, fmt.Sprintf("the unit has no lease %q", r.FormValue("lease")))
		return
	case err != nil:
		refuse(w, http.StatusBadGateway, err.Error())
		return
	}
	e := all[0]
	made := Explanation{
		Lease: e.Lease.Token, State: string(e.State), Facts: textsOf(e.Facts), Next: []string{},
		History: []Action{},
	}
	for _, next := range e.Next {
		made.Next = append(made.Next, s.completeCommands(next))
	}
	for _, entry := range e.History {
		made.History = append(made.History, Action{
			timeIn(entry.At), string(entry.Action), entry.By, entry.Reason, entry.Done, entry.Count, entry.Failed,
		})
	}
	answer(w, http.StatusOK, made)
}

// serveLetters answers GET /letters.
func (d *Dashboard) serveLetters(w http.ResponseWriter, r *http.Request) {
	s, err := d.unitAsked(r)
	if err != nil {
		refuse(w, http.StatusNotFound, err.Error())
		return
	}
	if s.Letters == nil {
		answer(w, http.StatusOK, Letters{})
		return
	}
	all := Letters{Letters: []Letter{}, At: s.LettersAt}
	ctx, cancel := context.WithTimeout(r.Context(), detailTimeout)
	defer cancel()
	for l, err := range s.Letters.Letters(ctx, "") {
		if err != nil {
			refuse(w, http.StatusBadGateway, err.Error())
			return
		}
		if all.More = len(all.Letters) == mostLetters; all.More {
			break
		}
		all.Letters = append(all.Letters, letterOf(&l))
	}
	answer(w, http.StatusOK, all)
}

// timeIn is a time for JSON, which has none outside of the years 0 to 9999. A document may name any; such a time is
// unknown.
func timeIn(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// letterOf is a dead letter as JSON.
func letterOf(l *feed.DeadLetter) Letter {
	made := Letter{
		ID: l.ID, Item: l.Change.ID, LSN: l.Change.LSN, Disposition: string(l.Disposition), Cause: l.Cause,
		Attempts: l.Attempts, Lease: l.Lease, Instance: l.Instance, Parked: timeIn(l.Parked), Key: []byte("null"),
	}
	if json.Valid([]byte(l.Change.PartitionKey)) {
		made.Key = json.RawMessage(l.Change.PartitionKey)
	}
	document := l.Change.Body
	if len(document) == 0 {
		document = l.Change.Previous
	}
	if made.Cut = len(document) > mostLetter; made.Cut {
		document = document[:mostLetter]
	}
	made.Document = string(document)
	return made
}
